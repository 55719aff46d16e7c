"""
Adapt in six lines
==================

A model is trained on rendered digits and adapted to handwritten digits. One line adapts it, one line predicts.

Here :func:`tllib_ancon.pretrain` trains the source model. You can also pass your own network, a checkpoint or a run
directory.
"""

from pathlib import Path

import matplotlib.pyplot as plt
from PIL import Image

from tllib_ancon import PretrainConfig, adapt, predict, pretrain
from tllib_ancon.laboratory.digits import write_demo_domains

write_demo_domains(Path("digits"))
digits = {"root": "digits", "data": "ImageList", "image_size": 28, "no_hflip": True}
machine = {"workers": 0, "threads": 1, "quiet": True}
network = {"arch": "small_cnn", "scratch": True, "scale": (0.5, 1.0)}
pretrain(PretrainConfig(**digits, **machine, **network, source=("rendered",), epochs=6, log="runs/source"))

# %%
# Neither training nor the selection of the epoch reads a label of the handwritten digits. This data set has labels, so
# that accuracy is recorded.

result = adapt("runs/source", **digits, **machine, target=("handwritten",), method="ancon", epochs=6)
predictions = predict(result.model, "digits/handwritten")
for path, label in list(zip(predictions.paths, predictions.labels, strict=True))[:3]:
    print(path, label)
print(f"epoch {result.selected_epoch} was selected without labels")

# %%
# Images for which the adapted model predicts another class than the source model.

before = predict("runs/source", "digits/handwritten").labels
changed = (before != predictions.labels).nonzero()[0]
figure, axes = plt.subplots(2, 6, figsize=(7, 2.8), layout="constrained")
for axis, image in zip(axes.flat, changed[:: len(changed) // 12], strict=False):
    axis.imshow(Image.open(predictions.paths[image]), cmap="gray")
    axis.set_title(f"{before[image]} → {predictions.labels[image]}")
    axis.axis("off")
figure.suptitle(f"Adaptation changes {len(changed)} of {len(before)} predicted classes")
plt.show()

# %%
# Epoch 0 is the source model.

epochs = [entry["epoch"] for entry in result.metrics]
accuracies = [entry["accuracy"] for entry in result.metrics]
plt.plot(epochs, accuracies, marker="o")
plt.axvline(result.selected_epoch, linestyle="--", color="grey", label="selected by InfoMax")
plt.title(f"Accuracy rises from {accuracies[0]:.1f} to {accuracies[result.selected_epoch]:.1f} % in the selected epoch")
plt.xlabel("epoch")
plt.ylabel("accuracy on the target (%)")
plt.legend()
plt.show()
