"""
What AnCon does
===============

Four images of a real run: those with the largest difference between pseudo-label and votes. Each row shows the current
prediction, the votes of earlier epochs, and AnCon's target, which is made of both.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from tllib_ancon import PretrainConfig, adapt, pretrain
from tllib_ancon.laboratory.digits import write_demo_domains

write_demo_domains(Path("digits"))
digits = {"root": "digits", "data": "ImageList", "image_size": 28, "no_hflip": True}
machine = {"workers": 0, "threads": 1, "quiet": True}
network = {"arch": "small_cnn", "scratch": True, "scale": (0.5, 1.0)}
pretrain(PretrainConfig(**digits, **machine, **network, source=("rendered",), epochs=6, log="runs/source"))
target = {"target": ("handwritten",), "epochs": 4}
adapt("runs/source", method="ancon", **digits, **machine, **target, log="runs/ancon")

# %%
# Equation 1 of the paper: target = (1 - λ) · one-hot of the pseudo-label + λ · temporal ensemble. The figure shows the
# normalised ensemble of the paper. The authors' code uses the sum of votes.

smoothing = 0.3
predictions = np.load("runs/ancon/predictions.npz")
softmax = np.exp(predictions["logits"] - predictions["logits"].max(1, keepdims=True))
softmax /= softmax.sum(1, keepdims=True)
votes = predictions["votes"].astype(float)
voted = np.flatnonzero(votes.sum(1) > 0)
ensemble = votes[voted] / votes[voted].sum(1, keepdims=True)
pseudo_labels = softmax[voted].argmax(1)
agreement = ensemble[np.arange(len(voted)), pseudo_labels]
shown = np.argsort(agreement, kind="stable")[:4]

figure, rows = plt.subplots(4, 4, figsize=(8, 7.5), constrained_layout=True)
figure.suptitle("Votes of earlier epochs move the target away from the present prediction")
titles = ("picture of the target", "prediction now", "votes of earlier epochs", "AnCon's target (λ = 0.3)")
for row, choice in zip(rows, shown, strict=True):
    one_hot = np.eye(10)[pseudo_labels[choice]]
    target = (1 - smoothing) * one_hot + smoothing * ensemble[choice]
    row[0].imshow(Image.open(str(predictions["paths"][voted[choice]])), cmap="gray")
    row[0].axis("off")
    for axis, values, colour in zip(
        row[1:], (softmax[voted[choice]], ensemble[choice], target), ("#0072B2", "#D55E00", "#009E73"), strict=True
    ):
        axis.bar(range(10), values, color=colour)
        axis.set(ylim=(0, 1), xticks=range(10), yticks=(0, 1), xlabel="class", ylabel="probability")
for axis, title in zip(rows[0], titles, strict=True):
    axis.set_title(title, fontsize=9)
plt.show()
