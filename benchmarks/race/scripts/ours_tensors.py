from torch.utils.data import TensorDataset

from tllib_ancon import adapt, predict


def race(task):
    images, processes = TensorDataset(task.tensors), {"workers": 0, "threads": 1, "quiet": True}
    training = {"epochs": task.epochs, "batch_size": task.batch_size, "seed": task.seed, "log": task.log}
    result = adapt(task.network, images, method=task.method, **training, **processes)
    return predict(result.model, images, **processes).probabilities
