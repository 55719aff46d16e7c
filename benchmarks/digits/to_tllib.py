"""Write MNIST and USPS arrays as images in the layout of TLLib's ``Digits``.

    python -m benchmarks.digits.to_tllib OUT --mnist mnist.npz --usps usps.npz
    tllib-ancon run OUT -d Digits -s MNIST -t USPS -a lenet --scratch --no-pool ... --pretrain cdan --method ancon

Each file holds ``train_x``, ``train_y``, ``test_x``, ``test_y``: N square grey pictures, (N, H, W) or (N, H·W), as
bytes or as numbers in [0, 1], and their digits 0 to 9. ``OUT`` gets for each of the two what TLLib looks for::

    MNIST/image_list/mnist_train.txt       one "mnist_train_image/00000_5.png 5" a line, in random order
    MNIST/mnist_train_image/00000_5.png    grey, of the array's resolution
    MNIST/image_list/mnist_test.txt
    MNIST/mnist_test_image/...
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from tllib_ancon.errors import UserError

SPLITS = ("train", "test")
MNIST_SIDE = 28
Splits = dict[str, tuple[np.ndarray, np.ndarray]]
"""Pictures and labels of each split."""


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write to")
    parser.add_argument("--mnist", type=Path, metavar="FILE", help="arrays of MNIST, .npz")
    parser.add_argument("--usps", type=Path, metavar="FILE", help="arrays of USPS, .npz")
    parser.add_argument(
        "--resplit-usps",
        type=int,
        metavar="N",
        help="mix USPS's splits, test on N; SHOT's copy: 1860 of 9298",
    )
    parser.add_argument(
        "--usps-side", type=int, metavar="PX", help="USPS digits of this side in the middle of 28², as MNIST's 20 are"
    )
    parser.add_argument("--most", type=int, metavar="N", help="images of a split; by default all")
    args = parser.parse_args(words)
    try:
        given = {name: getattr(args, name) for name in ("mnist", "usps") if getattr(args, name)}
        for flag in ("resplit_usps", "usps_side"):
            if getattr(args, flag) is not None and args.usps is None:
                raise UserError(f"--{flag.replace('_', '-')} needs --usps FILE")
        if not given:
            raise UserError("nothing to convert: pass --mnist FILE, --usps FILE or both")
        arrays = {name: read_arrays(path) for name, path in given.items()}
        if args.resplit_usps is not None:
            arrays["usps"] = resplit(arrays["usps"], args.resplit_usps)
        if args.usps_side is not None:
            arrays["usps"] = in_the_middle(arrays["usps"], args.usps_side)
        for name, splits in arrays.items():
            for split, (pictures, labels) in splits.items():
                count = write_split(args.out / name.upper(), f"{name}_{split}", pictures, labels, args.most)
                print(f"{args.out / name.upper()}: {count} images in {name}_{split}.txt")
    except UserError as error:
        print(f"to_tllib: error: {error}", file=sys.stderr)
        return 2
    return 0


def read_arrays(path: Path) -> Splits:
    """Pictures (N, H, W) as bytes and labels (N,) of each split.

    Raises:
        UserError: no such file, no such arrays, or arrays that are not N square pictures and N digits
    """
    if not path.is_file():
        raise UserError(f"{path} is not a file")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except ValueError as error:
        raise UserError(f"{path} is no .npz file of plain arrays ({error})") from error
    missing = [name for split in SPLITS for name in (f"{split}_x", f"{split}_y") if name not in arrays]
    if missing:
        raise UserError(f"{path} holds {', '.join(sorted(arrays))}, but not {', '.join(missing)}")
    return {split: _split(path, arrays[f"{split}_x"], arrays[f"{split}_y"]) for split in SPLITS}


def resplit(splits: Splits, test: int) -> Splits:
    """All pictures mixed, in an order that is always the same, and this many of them for testing.

    Raises:
        UserError: fewer pictures than there are for testing
    """
    number = sum(len(labels) for _, labels in splits.values())
    if not 0 < test < number:
        raise UserError(f"--resplit-usps {test}: expected 1 to {number - 1} of the {number} images that --usps gives")
    pictures, labels = (np.concatenate(parts) for parts in zip(*splits.values(), strict=True))
    order = np.random.default_rng(0).permutation(number)
    chosen = {"train": order[test:], "test": order[:test]}
    return {split: (pictures[indices], labels[indices]) for split, indices in chosen.items()}


def in_the_middle(splits: Splits, side: int) -> Splits:
    """Pictures resized to ``side``² (bicubic), each in the middle of a black square of 28².

    Raises:
        UserError: a side that does not fit
    """
    if not 1 <= side <= MNIST_SIDE:
        raise UserError(f"--usps-side {side}: expected 1 to {MNIST_SIDE} pixels")
    before = (MNIST_SIDE - side) // 2
    margin = (before, MNIST_SIDE - side - before)

    def place(picture: np.ndarray) -> np.ndarray:
        resized = Image.fromarray(picture).resize((side, side), Image.Resampling.BICUBIC)
        return np.pad(np.asarray(resized), (margin, margin))

    return {
        split: (np.stack([place(picture) for picture in parts]), labels) for split, (parts, labels) in splits.items()
    }


def write_split(folder: Path, name: str, pictures: np.ndarray, labels: np.ndarray, most: int | None = None) -> int:
    """Write images and their list in a random order that is always the same; returns how many."""
    images = folder / f"{name}_image"
    lists = folder / "image_list"
    for path in (images, lists):
        path.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, index in enumerate(np.random.default_rng(0).permutation(len(labels))[:most]):
        file = images / f"{number:05d}_{labels[index]}.png"
        Image.fromarray(pictures[index]).save(file)
        lines.append(f"{images.name}/{file.name} {labels[index]}\n")
    (lists / f"{name}.txt").write_text("".join(lines))
    return len(lines)


def _split(path: Path, pictures: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    side = round(np.prod(pictures.shape[1:]) ** 0.5)
    if labels.ndim != 1 or pictures.size != len(labels) * side**2:
        raise UserError(f"{path}: {pictures.shape} pictures and {labels.shape} labels; expected N squares and N digits")
    if labels.min() < 0 or labels.max() > 9:
        raise UserError(f"{path}: labels from {labels.min()} to {labels.max()}; expected digits 0 to 9")
    if pictures.dtype != np.uint8:
        if pictures.min() < 0 or pictures.max() > 1:
            raise UserError(f"{path}: pictures from {pictures.min()} to {pictures.max()}; expected bytes or [0, 1]")
        pictures = (pictures * 255).round().astype(np.uint8)
    return pictures.reshape(-1, side, side), labels.astype(int)


if __name__ == "__main__":
    sys.exit(main())
