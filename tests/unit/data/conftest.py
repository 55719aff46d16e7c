"""What the tests of data share: twelve images of noise, an epoch of them, empty files."""

import pytest
import torch
from PIL import Image

from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.loading import EpochSampler, ImageLoader, UnlabelledImages


@pytest.fixture
def domain(tmp_path):
    """Twelve images of 32² pixels of noise."""
    generator = torch.Generator().manual_seed(0)
    paths = []
    for number in range(12):
        pixels = torch.randint(256, (32, 32, 3), generator=generator, dtype=torch.uint8)
        paths.append(str(tmp_path / f"{number}.png"))
        Image.fromarray(pixels.numpy()).save(paths[-1])
    return ImageSource.of_files("d", paths, ["a", "b", "c"], [number % 3 for number in range(12)])


def epoch_of(domain, transform, workers=0, seed=3, epoch=0, drop_last=False):
    """Indices and images."""
    sampler = EpochSampler(range(len(domain)), len(domain), seed, len(domain))
    sampler.epoch = epoch
    loader = ImageLoader(UnlabelledImages(domain, transform, seed), 5, workers, sampler, drop_last)
    return [torch.cat(parts) for parts in zip(*loader, strict=True)]


def finished(images, key):
    """One image as a batch of its own would hold it."""
    _, pixels = images[key]
    return images.transform.normalized(pixels[None])[0]


def touch(root, *paths):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    return root
