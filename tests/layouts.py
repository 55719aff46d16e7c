"""Generated pictures in the on-disk layouts of the paper's datasets, for tests."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

OFFICE_HOME = {"Ar": "Art", "Cl": "Clipart", "Pr": "Product", "Rw": "Real_World"}
VISDA = {"Synthetic": "train", "Real": "validation"}


def write_office_home(root: Path, images: int, codes: Sequence[str] = tuple(OFFICE_HOME)) -> Path:
    """``image_list/Art.txt`` and so on, the first ``images`` of 65 classes one after the other."""
    for code in codes:
        write_list(root, OFFICE_HOME[code], images, classes=65)
    return root


def write_visda(root: Path, images: int) -> Path:
    for name in VISDA.values():
        write_list(root, name, images, classes=12)
    return root


def write_list(root: Path, name: str, images: int, classes: int) -> None:
    lines = []
    for number in range(images):
        path = f"{name}/class{number % classes}/{number:04d}.jpg"
        write_picture(root / path, number % classes, seed=number)
        lines.append(f"{path} {number % classes}\n")
    (root / "image_list").mkdir(exist_ok=True)
    (root / "image_list" / f"{name}.txt").write_text("".join(lines))


def write_classes(folder: Path, classes: Sequence[str], images: int) -> list[str]:
    """``folder/class/name.JPEG``; returns ``class/name.JPEG`` of each."""
    written = []
    for label, name in enumerate(classes):
        for number in range(images):
            written.append(f"{name}/{number:03d}.JPEG")
            write_picture(folder / written[-1], label, seed=number)
    return written


def write_picture(path: Path, label: int, seed: int, side: int = 24) -> None:
    """Noise with a colour that depends on the class."""
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 120, (side, side, 3))
    pixels[..., label % 3] += 30 + 20 * (label % 5)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(path)
