import torch
from pytorch_adapt.layers import AdaBNModel


def race(task):
    model = AdaBNModel(task.network)
    model.train()
    target = torch.tensor([1])
    with torch.no_grad():
        for _ in range(task.epochs):
            for images in task.tensors.split(task.batch_size):
                model(images, target)
        model.eval()
        return torch.cat([model(images, target) for images in task.tensors.split(task.batch_size)]).softmax(1)
