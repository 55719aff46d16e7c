"""Images a second of a training epoch: TLLib's own loader against the one of this package with its cache."""

import importlib
import tempfile
from collections import deque
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader

from benchmarks.speed.timing import Row, family_clock, in_turn, ratio, row
from tllib_ancon.data import cache
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.loading import EpochSampler, ImageLoader, UnlabelledImages, _item_seed
from tllib_ancon.data.open import open_domain
from tllib_ancon.data.transforms import ImageTransform, Preprocessing, train_transform
from tllib_ancon.toolkit.toolkit import find

BATCH = 64
DRAWN = 512


def measure(root: str | None = None, target: str = "W", workers: int = 2, rounds: int = 9) -> list[Row]:
    """Epochs after the first.

    Args:
        root: Office-31 in TLLib's layout. Default: pictures of its size, drawn at random
        target: domain of Office-31
    """
    with tempfile.TemporaryDirectory() as folder:
        images = open_domain(root, "Office31", [target]) if root else draw_domain(Path(folder))
        return _compare(images, Path(folder), rounds, workers, f"Office-31 {target}" if root else "drawn pictures")


def _compare(domain: Domain, folder: Path, rounds: int, workers: int, title: str) -> list[Row]:
    theirs, name = toolkit_images(domain, folder, Preprocessing(image_size=224)), f"{find().name}'s"
    loader = DataLoader(theirs, BATCH, shuffle=True, drop_last=True, num_workers=workers)
    usual = Preprocessing(image_size=224)
    in_workers = train_transform(usual)
    kept = cached(domain, [in_workers], folder)
    with_cache = _loader(kept, workers, in_workers)
    ours = {
        "without --cache": _loader(domain, workers, in_workers),
        "with --cache": with_cache,
    }
    loaders: dict[str, Iterable[Any]] = {name: loader, **ours}
    epochs = {title: partial(deque, batches, maxlen=0) for title, batches in loaders.items()}
    seconds = {title: np.stack(clocks).T for title, clocks in in_turn(epochs, rounds, clock=family_clock).items()}
    count, (wall, processor) = len(loader) * BATCH, seconds[name]
    limits = {"with --cache": {"at_least": 2}}
    title = f"{name} ImageList loader, {title}, {workers} workers"
    return [
        row(title, count / wall, "images/s"),
        *(ratio(f"images/s {way} / {name}", wall, seconds[way][0], **limits.get(way, {})) for way in ours),
        row(f"processor time of {title}", 1e3 * processor / count, "ms/image"),
        *(ratio(f"processor time of {name} / {way}", processor, seconds[way][1]) for way in ours),
        row("tensors that are the same given the same seed", [_same(theirs, with_cache)], "%", at_least=100),
    ]


def cached(domain: Domain, transforms: Iterable[ImageTransform], folder: Path) -> Domain:
    """The same domain, its images resized for these transforms and read from a cache in this folder."""
    resizings = [transform.resizing for transform in transforms]
    return cache.cached(domain, folder / "cache", resizings)


def _loader(domain: Domain, workers: int, transform: ImageTransform) -> ImageLoader:
    sampler = EpochSampler(range(len(domain)), len(domain), seed=0)
    return ImageLoader(UnlabelledImages(domain, transform), BATCH, workers, sampler, drop_last=True)


def _same(theirs: Any, cached: ImageLoader) -> float:
    """Percent of 64 images whose tensor is the toolkit's, when that starts from the same seed."""
    indices, images = next(iter(cached))
    same = []
    for index, image, key in zip(indices.tolist(), images, cached.sampler or (), strict=False):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_item_seed(0, key))
            same.append(torch.equal(theirs[index][0], image.cpu()))
    return 100 * sum(same) / len(same)


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


def draw_domain(folder: Path, count: int = DRAWN) -> Domain:
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
