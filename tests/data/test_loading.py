from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.data.test_images import AUGMENTATION, domain
from tllib_ancon.data.decoding import load_image
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import LabelledImages, UnlabelledImages
from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.data.sampling import EpochSampler
from tllib_ancon.data.transforms import TransformOptions, evaluation_transform, train_transform

__all__ = ["domain"]


def epoch_of(loader: ImageLoader, epoch: int) -> list[Tensor]:
    loader.sampler.epoch = epoch
    return [torch.cat(parts) for parts in zip(*loader, strict=True)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_holds_what_the_dataset_gives(domain: Domain, workers: int) -> None:
    images = UnlabelledImages(domain, train_transform(AUGMENTATION))
    loader = ImageLoader(images, 5, workers, EpochSampler(range(12), 12, seed=0), drop_last=True)
    for epoch in (0, 1):
        keys = [key for key, _ in zip(_keys(epoch), range(10), strict=False)]
        indices, batch = epoch_of(loader, epoch)
        assert indices.tolist() == [key % 12 for key in keys]
        assert torch.equal(batch, torch.stack([images[key][1] for key in keys]))


def _keys(epoch: int) -> list[int]:
    sampler = EpochSampler(range(12), 12, seed=0)
    sampler.epoch = epoch
    return list(sampler)


def test_labels_come_with_the_images_in_the_domains_order(domain: Domain) -> None:
    images = LabelledImages(domain, evaluation_transform(AUGMENTATION))
    batches = list(ImageLoader(images, 5, workers=0))
    assert [len(labels) for _, labels in batches] == [5, 5, 2]
    assert torch.cat([labels for _, labels in batches]).tolist() == [number % 3 for number in range(12)]


def test_any_callable_may_be_the_transform(domain: Domain) -> None:
    images = UnlabelledImages(domain, lambda image: torch.zeros(3, 2, 2))
    assert next(iter(ImageLoader(images, 4, workers=0)))[1].shape == (4, 3, 2, 2)


def test_the_global_random_state_is_left_alone(domain: Domain) -> None:
    loader = ImageLoader(UnlabelledImages(domain, train_transform(AUGMENTATION)), 4, workers=0)
    state = torch.get_rng_state()
    list(loader)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("mean", [(0.5,), (0.4, 0.5, 0.6)])
def test_the_parts_of_a_transform_are_torchvisions_steps(domain: Domain, mean: tuple[float, ...]) -> None:
    from torchvision import transforms as T

    options = TransformOptions(
        image_size=21, scale=(0.3, 1.0), norm_mean=mean, norm_std=tuple(value / 2 for value in mean)
    )
    gray = [T.Grayscale()] if len(mean) == 1 else []
    steps = T.Compose(
        [
            *(
                T.Resize((24, 24), T.InterpolationMode.BICUBIC),
                T.RandomResizedCrop(21, options.scale, options.ratio),
                T.RandomHorizontalFlip(),
            ),
            *(*gray, T.ToTensor(), T.Normalize(mean, options.norm_std)),
        ]
    )
    for seed, path in enumerate(domain.paths):
        torch.manual_seed(seed)
        expected = steps(load_image(path))
        torch.manual_seed(seed)
        assert torch.equal(train_transform(options)(load_image(path)), expected)


def test_bytes_in_any_layout_are_normalised() -> None:
    transform = train_transform(TransformOptions())
    pixels = torch.randint(256, (2, 5, 7, 3), dtype=torch.uint8)
    for part in (pixels, pixels[0], pixels[:, ::2], pixels.transpose(1, 2)):
        images = transform.normalize(part)
        assert images.is_contiguous()
        for channel, (mean, std) in enumerate(zip(transform.mean, transform.std, strict=True)):
            assert torch.equal(images.select(-3, channel), (part[..., channel] / 255 - mean) / std)
