"""The demo's two domains: digits rendered from fonts, and handwritten digits. Nothing is downloaded."""

import random
from collections.abc import Iterator
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from tllib_ancon.runs.files import write_bytes
from tllib_ancon.runtime.extras import require

SOURCE = "rendered"
TARGET = "handwritten"
IMAGES_PER_CLASS = 400
SIDE = 32
RESOLUTION = 8
CROP = 28
FONTS = ("DejaVu", "STIXGeneral", "cmr10", "cmb10", "cmss10", "cmtt10")
"""Beginnings of the names of matplotlib's fonts that have ordinary digits."""


def write_demo_domains(root: Path) -> None:
    """Write both domains in TLLib's ImageList layout under ``root``; does nothing where they are complete.

    ``rendered``: 4,000 images, white on black, of the ten digits in random fonts of matplotlib, at random size,
    position and rotation. ``handwritten``: the 1,797 handwritten digits of scikit-learn (from UCI's "Optical
    Recognition of Handwritten Digits"). Both have that set's resolution, 8² pixels, enlarged to 32².

    Args:
        root (Path): created if missing
    """
    lists = root / "image_list"
    if (lists / "classes.txt").is_file():
        return
    require("demo", "sklearn", "matplotlib", extra="demo")
    lists.mkdir(parents=True, exist_ok=True)
    for name, images in ((SOURCE, rendered_digits()), (TARGET, handwritten_digits())):
        lines = []
        for number, (image, label) in enumerate(images):
            path = Path(name, str(label), f"{number:05d}.png")
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            image.save(root / path)
            lines.append(f"{path.as_posix()} {label}\n")
        (lists / f"{name}.txt").write_text("".join(lines))
    names = "".join(f"{digit}\n" for digit in range(10))
    write_bytes(lists / "classes.txt", names.encode())  # the last file: it says that both domains are complete


def rendered_digits(images_per_class: int = IMAGES_PER_CLASS) -> Iterator[tuple[Image.Image, int]]:
    """Digits in random fonts, size, position and rotation."""
    import matplotlib

    generator = random.Random(0)
    folder = Path(matplotlib.get_data_path(), "fonts", "ttf")
    fonts = sorted(path for path in folder.glob("*.ttf") if path.name.startswith(FONTS) and "Display" not in path.name)
    for label in range(10):
        for _ in range(images_per_class):
            font = ImageFont.truetype(str(generator.choice(fonts)), generator.randint(20, 44))
            canvas = Image.new("L", (2 * SIDE, 2 * SIDE))
            ImageDraw.Draw(canvas).text((SIDE, SIDE), str(label), fill=255, font=font, anchor="mm")
            turned = canvas.rotate(generator.uniform(-20, 20), Image.Resampling.BICUBIC)
            left = SIDE // 2 + generator.randint(-2, 2)
            top = SIDE // 2 + generator.randint(-2, 2)
            crop = turned.crop((left, top, left + SIDE, top + SIDE))
            yield _enlarge(crop.resize((RESOLUTION, RESOLUTION), Image.Resampling.BOX)), label


def handwritten_digits() -> Iterator[tuple[Image.Image, int]]:
    """scikit-learn's digits, values 0 to 16, as 8-bit images."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    for pixels, label in zip(digits.images, digits.target, strict=True):
        small = Image.fromarray((pixels * (255 / 16)).round().astype("uint8"))
        yield _enlarge(small), int(label)


def _enlarge(image: Image.Image) -> Image.Image:
    return image.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
