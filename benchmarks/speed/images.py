"""Images for the measurements: drawn ones, and the toolkit's own loader of them."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tllib_ancon.data.domain import Domain
from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.toolkit.toolkit import find


def toolkit_images(domain: Domain, folder: Path, options: Preprocessing, augment: bool = True) -> Any:
    """The toolkit's own ImageList on the same images, with TLLib's steps: Pillow resizes, torchvision does the rest."""
    from torchvision import transforms as T

    augmentation = [T.RandomResizedCrop(options.image_size, options.scale, options.ratio), T.RandomHorizontalFlip()]
    list_file = folder / "list.txt"
    list_file.write_text("".join(f"{path} 0\n" for path in domain.paths or ()))
    side = options.resizing("default").side
    steps = T.Compose(
        [
            T.Lambda(lambda image: image.resize((side, side))),
            *(augmentation if augment else [T.CenterCrop(options.image_size)]),
            T.ToTensor(),
            T.Normalize(options.mean, options.std),
        ]
    )
    module = importlib.import_module(f"{find().name}.vision.datasets.imagelist")
    return module.ImageList(str(folder), domain.classes, str(list_file), transform=steps)


def draw_domain(folder: Path, count: int) -> Domain:
    """Pictures of 256² with edges and noise, as JPEG files of about 20 kB."""
    generator = np.random.default_rng(0)
    paths = []
    for number in range(count):
        coarse = Image.fromarray(generator.integers(0, 256, (16, 16, 3), dtype=np.uint8))
        pixels = np.asarray(coarse.resize((256, 256))).astype(float) + generator.normal(0, 8, (256, 256, 3))
        path = folder / f"{number}.jpg"
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path, quality=90)
        paths.append(str(path))
    return Domain.of_files("drawn", paths, ["picture"])
