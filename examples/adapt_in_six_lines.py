"""
Adapt in six lines
==================

A model of rendered digits meets handwritten ones. One line adapts it, one predicts.

:func:`tllib_ancon.pretrain` makes the source model here; take your own network, a checkpoint or a run directory in its
place.
"""

from pathlib import Path

import matplotlib.pyplot as plt
from PIL import Image

from tllib_ancon import PretrainConfig, adapt, predict, pretrain
from tllib_ancon.data.demo import write_demo_domains

write_demo_domains(Path("digits"))
digits = {"root": "digits", "data": "ImageList", "image_size": 28, "no_hflip": True}
machine = {"workers": 0, "threads": 1, "quiet": True}
network = {"arch": "small_cnn", "scratch": True, "scale": (0.5, 1.0)}
pretrain(PretrainConfig(**digits, **machine, **network, source=("rendered",), epochs=6, log="runs/source"))

# %%
# No label of the handwritten digits is read for training or for choosing the epoch; the accuracy is
# computed for the record, because this data set has labels.

result = adapt("runs/source", **digits, **machine, target=("handwritten",), method="ancon", epochs=6)
predictions = predict(result.model, "digits/handwritten")
for path, label in list(zip(predictions.paths, predictions.labels, strict=True))[:3]:
    print(path, label)
print(f"epoch {result.selected_epoch} was chosen without labels")

# %%
# Pictures that the adapted model reads otherwise than the source model.

before = predict("runs/source", "digits/handwritten").labels
changed = (before != predictions.labels).nonzero()[0]
figure, axes = plt.subplots(2, 6, figsize=(7, 2.8), layout="constrained")
for axis, image in zip(axes.flat, changed[:: len(changed) // 12], strict=False):
    axis.imshow(Image.open(predictions.paths[image]), cmap="gray")
    axis.set_title(f"{before[image]} → {predictions.labels[image]}")
    axis.axis("off")
plt.show()

# %%
# Epoch 0 is the start.

epochs = [entry["epoch"] for entry in result.metrics]
plt.plot(epochs, [entry["accuracy"] for entry in result.metrics], marker="o")
plt.axvline(result.selected_epoch, linestyle="--", color="grey", label="chosen by InfoMax")
plt.xlabel("epoch")
plt.ylabel("accuracy on the target (%)")
plt.legend()
plt.show()
