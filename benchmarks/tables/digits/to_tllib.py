"""Write MNIST and USPS arrays as images in the layout of TLLib's ``Digits``.

    python -m benchmarks.tables.digits.to_tllib OUT --mnist mnist.npz --usps usps.npz
    tllib-ancon pretrain OUT/MNIST -d ImageList -s mnist_train -a small_cnn --scratch --log source
    tllib-ancon adapt OUT/USPS -d ImageList -t usps_train --checkpoint source --log adapted

Each file holds ``train_x``, ``train_y``, ``test_x``, ``test_y``: N square grey pictures, (N, H, W) or (N, H·W), as
bytes or as numbers in [0, 1], and their digits 0 to 9. ``OUT`` gets for each of the two what TLLib looks for::

    MNIST/image_list/mnist_train.txt       one "mnist_train_image/00000_5.png 5" a line, in random order
    MNIST/mnist_train_image/00000_5.png    grey, of the array's resolution
    MNIST/image_list/mnist_test.txt
    MNIST/mnist_test_image/...
"""

from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks import parser, run
from tllib_ancon.runtime.errors import UserError

SPLITS = ("train", "test")


def main(words=None):
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("out", type=Path, metavar="OUT", help="folder to write to")
    arguments.add_argument("--mnist", type=Path, required=True, metavar="FILE", help="arrays of MNIST, .npz")
    arguments.add_argument("--usps", type=Path, required=True, metavar="FILE", help="arrays of USPS, .npz")
    arguments.add_argument(
        "--resplit-usps", type=int, metavar="N", help="mix USPS's splits, test on N; SHOT's copy: 1860 of 9298"
    )
    args = arguments.parse_args(words)
    usps = _read(args.usps)
    if args.resplit_usps is not None:
        usps = _resplit(usps, args.resplit_usps)
    for name, splits in (("mnist", _read(args.mnist)), ("usps", usps)):
        folder = args.out / name.upper()
        for split in SPLITS:
            _write(folder, f"{name}_{split}", *_mixed(*splits[split]))


def _read(path):
    splits = {}
    with np.load(path, allow_pickle=False) as file:
        for split in SPLITS:
            labels = file[f"{split}_y"].astype(int)
            pictures = file[f"{split}_x"]
            if pictures.dtype != np.uint8:
                pictures = (pictures * 255).round().astype(np.uint8)
            side = round(np.prod(pictures.shape[1:]) ** 0.5)
            splits[split] = (pictures.reshape(-1, side, side), labels)
    return splits


def _mixed(pictures, labels):
    """In an order that is always the same."""
    order = np.random.default_rng(0).permutation(len(labels))
    return pictures[order], labels[order]


def _resplit(splits, test):
    """All pictures mixed, and this many of them for testing."""
    pictures, labels = _mixed(*(np.concatenate(parts) for parts in zip(*splits.values(), strict=True)))
    if not 0 < test < len(labels):
        raise UserError(f"--resplit-usps {test}: expected 1 to {len(labels) - 1}, USPS has {len(labels)} images")
    return {"train": (pictures[test:], labels[test:]), "test": (pictures[:test], labels[:test])}


def _write(folder, name, pictures, labels):
    """Write images and their list."""
    images = folder / f"{name}_image"
    list_file = folder / "image_list" / f"{name}.txt"
    for path in (images, list_file.parent):
        path.mkdir(parents=True, exist_ok=True)
    with open(list_file, "w") as file:
        for number, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
            Image.fromarray(picture).save(images / f"{number:05d}_{label}.png")
            file.write(f"{images.name}/{number:05d}_{label}.png {label}\n")


if __name__ == "__main__":
    run(main)
