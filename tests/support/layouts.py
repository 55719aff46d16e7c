"""Generated pictures in the on-disk layouts of the paper's datasets, for tests."""

import numpy as np
from PIL import Image


def write_list(root, name, images, classes):
    lines = []
    for number in range(images):
        path = f"{name}/class{number % classes}/{number:04d}.jpg"
        write_picture(root / path, number % classes, seed=number)
        lines.append(f"{path} {number % classes}\n")
    (root / "image_list").mkdir(exist_ok=True)
    (root / "image_list" / f"{name}.txt").write_text("".join(lines))


def write_classes(folder, classes, images):
    """``folder/class/name.JPEG``; returns ``class/name.JPEG`` of each."""
    written = []
    for label, name in enumerate(classes):
        for number in range(images):
            written.append(f"{name}/{number:03d}.JPEG")
            write_picture(folder / written[-1], label, seed=number)
    return written


def write_picture(path, label, seed, side=24):
    """Noise with a colour that depends on the class."""
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 120, (side, side, 3))
    pixels[..., label % 3] += 30 + 20 * (label % 5)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(path)
