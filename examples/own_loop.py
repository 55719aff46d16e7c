"""
AnCon in a training loop of your own
====================================

:class:`~tllib_ancon.AnchoredConfidence` is an ``nn.Module`` that computes soft targets from a batch of logits. Model,
data, loss and optimiser are your own.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torchvision.transforms import RandomResizedCrop

from tllib_ancon import AnchoredConfidence
from tllib_ancon.laboratory.digits import handwritten_digits, rendered_digits

torch.manual_seed(0)
torch.set_num_threads(1)


def tensors(pictures):
    images, labels = zip(*pictures, strict=True)
    return torch.stack([torch.from_numpy(np.array(image)) for image in images])[:, None] / 127.5 - 1, torch.tensor(
        labels
    )


source, source_labels = tensors(rendered_digits(images_per_class=150))
target, true = tensors(handwritten_digits())
model = nn.Sequential(
    *(nn.Conv2d(1, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
    *(nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU()),
    *(nn.Conv2d(64, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU()),
    *(nn.Flatten(), nn.Linear(1024, 10)),
)

# %%
# The source model is trained on rendered digits and their labels.


crop = RandomResizedCrop(32, scale=(0.5, 1.0))  # one random crop for each batch
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(20):
    for rows in torch.randperm(len(source)).split(64):
        loss = nn.functional.cross_entropy(model(crop(source[rows])), source_labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

# %%
# The loop of self-training, with two lines for AnCon. ``indices`` are positions in the whole target set, by which the
# votes of each image are stored. ``true`` is only used for the curve.


def accuracy():
    model.eval()
    with torch.no_grad():
        return (model(target).argmax(1) == true).float().mean().item() * 100


ancon = AnchoredConfidence(num_samples=len(target), num_classes=10)  # the first line
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
curve, thresholds = [accuracy()], []
for _ in range(8):
    model.train()
    for indices in torch.randperm(len(target)).split(64):
        logits = model(crop(target[indices]))
        targets = ancon(indices, logits)  # the second: (B, K), without gradient
        loss = -(targets * logits.log_softmax(1)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    curve.append(accuracy())
    thresholds.append(float(ancon.threshold))
print(f"accuracy on the target: {curve[0]:.1f} % before, {curve[-1]:.1f} % after")

# %%
# The threshold δ is a moving average of the confidence. It rises with the confidence of the model.

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), constrained_layout=True)
left.plot(curve, marker="o")
left.set(xlabel="epoch", ylabel="accuracy on the target (%)")
right.plot(range(1, 9), thresholds, marker="s", color="#D55E00")
right.set(xlabel="epoch", ylabel="threshold δ (confidence, 0 to 1)")
figure.suptitle(f"AnCon changes accuracy from {curve[0]:.1f} to {curve[-1]:.1f} %")
plt.show()
