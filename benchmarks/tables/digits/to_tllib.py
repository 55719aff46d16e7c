"""Write MNIST and USPS arrays as images in the layout of TLLib's ``Digits``.

    python -m benchmarks.tables.digits.to_tllib OUT --mnist mnist.npz --usps usps.npz
    tllib-ancon pretrain OUT/MNIST -d ImageList --num-classes 10 -s mnist_train -a small_cnn --scratch --log source
    tllib-ancon adapt OUT/USPS -d ImageList --num-classes 10 -t usps_train --checkpoint source --log adapted

Each file holds ``train_x``, ``train_y``, ``test_x``, ``test_y``: N square grey pictures, (N, H, W) or (N, H·W), as
bytes or as numbers in [0, 1], and their digits 0 to 9. ``OUT`` gets for each of the two what TLLib looks for::

    MNIST/image_list/mnist_train.txt       one "mnist_train_image/00000_5.png 5" a line, in random order
    MNIST/mnist_train_image/00000_5.png    grey, of the array's resolution
    MNIST/image_list/mnist_test.txt
    MNIST/mnist_test_image/...
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from PIL import Image

SPLITS = ("train", "test")
MNIST_SIDE = 28
Splits = dict[str, tuple[np.ndarray, np.ndarray]]
"""Pictures (N, H, W) as bytes and labels (N,) of each split."""


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write to")
    parser.add_argument("--mnist", type=Path, metavar="FILE", help="arrays of MNIST, .npz")
    parser.add_argument("--usps", type=Path, metavar="FILE", help="arrays of USPS, .npz")
    parser.add_argument(
        "--resplit-usps", type=int, metavar="N", help="mix USPS's splits, test on N; SHOT's copy: 1860 of 9298"
    )
    parser.add_argument(
        "--usps-side", type=int, metavar="PX", help="USPS digits of this side in the middle of 28², as MNIST's 20 are"
    )
    args = parser.parse_args(words)
    try:
        arrays = {name: _read(path) for name, path in (("mnist", args.mnist), ("usps", args.usps)) if path}
        if args.resplit_usps is not None:
            arrays["usps"] = _resplit(arrays["usps"], args.resplit_usps)
        if args.usps_side is not None:
            arrays["usps"] = _in_the_middle(arrays["usps"], args.usps_side)
    except KeyError:
        parser.error("--resplit-usps and --usps-side need --usps FILE")
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if not arrays:
        parser.error("nothing to convert: pass --mnist FILE, --usps FILE or both")
    for name, splits in arrays.items():
        for split in SPLITS:
            folder = args.out / name.upper()
            count = _write(folder, f"{name}_{split}", *_mixed(*splits[split]))
            print(f"{folder}: {count} images in {name}_{split}.txt")
    return 0


def _read(path: Path) -> Splits:
    """
    Raises:
        ValueError: no such arrays, or arrays that are not N square pictures and N digits
    """
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    missing = [name for split in SPLITS for name in (f"{split}_x", f"{split}_y") if name not in arrays]
    if missing:
        raise ValueError(f"{path} holds {', '.join(sorted(arrays))}, but not {', '.join(missing)}")
    return {split: _checked(path, arrays[f"{split}_x"], arrays[f"{split}_y"]) for split in SPLITS}


def _checked(path: Path, pictures: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    side = round(np.prod(pictures.shape[1:]) ** 0.5)
    if labels.ndim != 1 or pictures.size != len(labels) * side**2:
        raise ValueError(f"{path}: {pictures.shape} pictures, {labels.shape} labels; expected N squares and N digits")
    if labels.min() < 0 or labels.max() > 9:
        raise ValueError(f"{path}: labels from {labels.min()} to {labels.max()}; expected digits 0 to 9")
    if pictures.dtype != np.uint8:
        if pictures.min() < 0 or pictures.max() > 1:
            raise ValueError(f"{path}: pictures from {pictures.min()} to {pictures.max()}; expected bytes or [0, 1]")
        pictures = (pictures * 255).round().astype(np.uint8)
    return pictures.reshape(-1, side, side), labels.astype(int)


def _mixed(pictures: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """In an order that is always the same."""
    order = np.random.default_rng(0).permutation(len(labels))
    return pictures[order], labels[order]


def _resplit(splits: Splits, test: int) -> Splits:
    """All pictures mixed, and this many of them for testing."""
    pictures, labels = _mixed(*(np.concatenate(parts) for parts in zip(*splits.values(), strict=True)))
    if not 0 < test < len(labels):
        raise ValueError(
            f"--resplit-usps {test}: expected 1 to {len(labels) - 1} of the {len(labels)} images of --usps"
        )
    return {"train": (pictures[test:], labels[test:]), "test": (pictures[:test], labels[:test])}


def _in_the_middle(splits: Splits, side: int) -> Splits:
    """Pictures resized to ``side``² (bicubic), each in the middle of a black square of 28²."""
    if not 1 <= side <= MNIST_SIDE:
        raise ValueError(f"--usps-side {side}: expected 1 to {MNIST_SIDE} pixels")
    before = (MNIST_SIDE - side) // 2
    margin = (before, MNIST_SIDE - side - before)

    def place(picture: np.ndarray) -> np.ndarray:
        resized = Image.fromarray(picture).resize((side, side), Image.Resampling.BICUBIC)
        return np.pad(np.asarray(resized), (margin, margin))

    return {split: (np.stack([*map(place, pictures)]), labels) for split, (pictures, labels) in splits.items()}


def _write(folder: Path, name: str, pictures: np.ndarray, labels: np.ndarray) -> int:
    """Write images and their list; returns how many."""
    images, list_file = folder / f"{name}_image", folder / "image_list" / f"{name}.txt"
    for path in (images, list_file.parent):
        path.mkdir(parents=True, exist_ok=True)
    with open(list_file, "w") as file:
        for number, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
            Image.fromarray(picture).save(images / f"{number:05d}_{label}.png")
            file.write(f"{images.name}/{number:05d}_{label}.png {label}\n")
    return len(labels)


if __name__ == "__main__":
    sys.exit(main())
