import numpy as np

from tllib_ancon import adapt, predict


def race(task):
    train, test = map(np.load(task.images).get, ("train", "test"))
    network = {"scratch": True, "dropout": True, "no_hflip": True, "criterion": "last"}
    sgd = {"lr": 0.01, "weight_decay": 1e-3, "lr_gamma": 10.0, "lr_decay": 0.75, "batch_size": task.batch_size}
    shot = {"method": "shot", "shot_coefficient": 0.1, "epochs": task.epochs, "seed": task.seed, "log": task.log}
    result = adapt(task.weights, train, **network, **sgd, **shot, workers=0, threads=1, quiet=True)
    return predict(result.model, test, workers=0, threads=1).probabilities
