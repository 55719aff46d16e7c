"""
Certify with 40 labels
======================

Without labels nobody can know whether adaptation helped. Labels of random images on which the two models disagree are
enough: about 20 if the difference is above ten points, and about 100 at two to five points. Here the labels come from
the data set instead of a user.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from tllib_ancon import PretrainConfig, adapt, predict, pretrain
from tllib_ancon.laboratory.digits import write_demo_domains
from tllib_ancon.measures.disagreement import DisagreementTest

write_demo_domains(Path("digits"))
digits = {"root": "digits", "data": "ImageList", "image_size": 28, "no_hflip": True}
machine = {"workers": 0, "threads": 1, "quiet": True}
network = {"arch": "small_cnn", "scratch": True, "scale": (0.5, 1.0)}
pretrain(PretrainConfig(**digits, **machine, **network, source=("rendered",), epochs=6, log="runs/source"))
result = adapt("runs/source", **digits, **machine, target=("handwritten",), method="ancon", epochs=6)

# %%
# Predictions of both models on all images.

before = predict("runs/source", "digits/handwritten")
after = predict(result.model, "digits/handwritten")
true = np.array([int(Path(path).parent.name) for path in before.paths])  # a user would be asked
disagreements = np.flatnonzero(before.labels != after.labels)
print(f"{len(disagreements)} of {len(true)} images have another class after the adaptation")

figure, axes = plt.subplots(1, 4, figsize=(7, 2), layout="constrained")
for axis, image in zip(axes, disagreements[:: len(disagreements) // 3], strict=False):
    axis.imshow(Image.open(before.paths[image]), cmap="gray")
    axis.set_title(f"{before.labels[image]} or {after.labels[image]}?")
    axis.axis("off")
figure.suptitle("Questions: which of the two predicted classes is right?")
plt.show()

# %%
# A label counts +1 if the adapted model is right, -1 if the source model is right, and 0 otherwise. You may look after
# each label and stop. A false verdict has probability ``delta`` at most.

test = DisagreementTest(delta=0.05, margin=0.0, disagreements=len(disagreements), images=len(true))
lower, upper = [], []
for image in np.random.default_rng(0).permutation(disagreements)[:40]:
    test.update(int(true[image] == after.labels[image]) - int(true[image] == before.labels[image]))
    lower.append(100 * test.interval.lower)
    upper.append(100 * test.interval.upper)
    if test.settled:
        break
print(f"{test.verdict} after {len(test.outcomes)} labels")
gain = 100 * (np.mean(after.labels == true) - np.mean(before.labels == true))

plt.fill_between(range(1, len(lower) + 1), lower, upper, alpha=0.3, label="interval, valid at every label")
plt.axhline(gain, color="black", linestyle="--", label="true gain, from all labels of the data set")
plt.axhline(0, color="grey", linewidth=0.8)
plt.title(f"The verdict after {len(test.outcomes)} labels: {test.verdict}")
plt.xlabel("labels")
plt.ylabel("gain in accuracy (points)")
plt.legend()
plt.show()
