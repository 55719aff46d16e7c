from tllib_ancon import adapt, predict
from tllib_ancon.data.open import open_domain


def race(task):
    target = open_domain(task.images, "Office31", [task.target])
    images = {"arch": "mobilenetv2_100", "train_resizing": "res.", "val_resizing": "res.", "image_size": 128}
    training = {"epochs": task.epochs, "batch_size": task.batch_size, "seed": task.seed, "log": task.log, "lr": 0.01}
    machine = {"workers": 0, "threads": 1, "quiet": True}
    result = adapt(task.weights, target, method=task.method, **images, **training, **machine)
    task.accuracies = [entry["accuracy"] for entry in result.metrics]
    return predict(result.model, target, workers=0, threads=1).probabilities
