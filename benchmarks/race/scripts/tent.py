import sys

import torch


def race(task):
    sys.path.insert(0, f"{task.code}/tent")
    import tent

    network = tent.configure_model(task.network)
    parameters, _ = tent.collect_params(network)
    model = tent.Tent(network, torch.optim.Adam(parameters, lr=1e-3))
    for _ in range(task.epochs):
        logits = torch.cat([model(images).detach() for images in task.tensors.split(task.batch_size)])
    return logits.softmax(1)
