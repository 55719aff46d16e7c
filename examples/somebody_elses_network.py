"""
A public network on dark images
===============================

A public ResNet-20, trained on CIFAR-10, has an accuracy of 91.7 % on the test images. Here it is adapted to 1,000 of
them with a quarter of the light, as PNG files in a folder. It uses no labels and no training data.

.. figure:: /images/somebody_elses_network.png
   :alt: ten dark images on which the two models disagree, with both predictions

   The first ten images on which the two models disagree, with the predictions before and after adaptation.

The package does not contain the data. Set ``CIFAR10=FOLDER`` to a folder with the test images and the weights
(``python -m benchmarks.data`` names their sources). Without it this page shows stored numbers.
"""

import os
import sys
from pathlib import Path
from tempfile import mkdtemp

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from tllib_ancon import adapt, certify, predict

if "__file__" in globals():  # not where the site's gallery runs it
    sys.path.append(str(Path(__file__).resolve().parents[1]))
from benchmarks.cifar10_c.networks import SHOWN, load

# %%
# From the download to a certified gain:

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def main(weights: Path, photos: str, labels: np.ndarray) -> None:
    model = load(weights)
    result = adapt(model, photos, method="ancon", epochs=3, threads=1, **SHOWN)
    before, after = (predict(each, photos, **SHOWN) for each in (model, result.model))
    shares = [100 * np.mean(each.labels == labels) for each in (before, after)]
    print(f"{shares[0]:.1f} % before, {shares[1]:.1f} % after")
    print(certify(model, result.model, photos, labels=labels, classes=CLASSES, **SHOWN))

    figure, axes = plt.subplots(2, 5, figsize=(8, 4.5), layout="constrained")
    figure.suptitle(f"Accuracy on 1,000 dark images rises from {shares[0]:.1f} to {shares[1]:.1f} %")
    for position, axis in zip(np.flatnonzero(before.labels != after.labels), axes.flat, strict=False):
        axis.imshow(Image.open(before.paths[position]))
        said = [
            (CLASSES[k], "✓" if k == labels[position] else "✗")
            for k in (before.labels[position], after.labels[position])
        ]
        axis.set_title(f"{' '.join(said[0])}\n→ {' '.join(said[1])}", fontsize=10)
        axis.axis("off")
    figure.savefig("somebody_elses_network.png")


# %%
# .. code-block:: text
#
#    67.3 % before, 90.7 % after
#    certified better: the adapted model's accuracy minus the source model's is between +1.0 and +31.5 points
#    (each end wrong with probability 5 % at most); 9 of 317 disagreements have a label, of 1,000 images
#
# Printed with PyTorch 2.15 on a CPU. The labels of the test set answer the certificate's questions. Neither training
# nor the choice of the epoch reads them. ``method="adabn"``, which only replaces batch-norm statistics, has 89.9 %,
# and the default 87.6 %.

folder = Path(os.environ.get("CIFAR10", "cifar10"))
if (folder / "test.npz").is_file():
    photos = mkdtemp()
    with np.load(folder / "test.npz") as test:
        images, labels = test["x"][:1000], test["y"][:1000]
    for number, image in enumerate(images):
        Image.fromarray(image // 4).save(f"{photos}/{number:05d}.png")
    main(folder / "resnet20-12fca82f.th", photos, labels)
else:
    print(f"{folder / 'test.npz'} is missing: set CIFAR10 to the folder that holds it. The numbers above are stored.")
# sphinx_gallery_thumbnail_path = 'images/somebody_elses_network.png'
