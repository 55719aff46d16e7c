from benchmarks.cifar10_c.networks import MEAN, STD
from tllib_ancon import adapt, predict


def race(task):
    images = {"image_size": 32, "norm_mean": MEAN, "norm_std": STD, "workers": 0, "threads": 1, "quiet": True}
    training = {"epochs": task.epochs, "batch_size": task.batch_size, "seed": task.seed, "log": task.log}
    result = adapt(task.network, task.pixels, method=task.method, **training, **images)
    return predict(result.model, task.pixels, **images).probabilities
