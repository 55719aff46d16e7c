from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import EpsImagePlugin, Image
from torch.utils.data import DataLoader

from tllib_ancon.data.decoding import load_image
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import LabelledImages, UnlabelledImages
from tllib_ancon.data.sampling import EpochSampler, hold_out
from tllib_ancon.data.transforms import TransformOptions, evaluation_transform, train_transform
from tllib_ancon.data.unreadable import without_unreadable
from tllib_ancon.errors import UserError

AUGMENTATION = TransformOptions(image_size=28, scale=(0.3, 1.0))


@pytest.fixture
def domain(tmp_path: Path) -> Domain:
    generator = torch.Generator().manual_seed(0)
    paths = []
    for number in range(12):
        pixels = torch.randint(256, (32, 32, 3), generator=generator, dtype=torch.uint8)
        paths.append(str(tmp_path / f"{number}.png"))
        Image.fromarray(pixels.numpy()).save(paths[-1])
    return Domain.of_files("d", paths, ["a", "b", "c"], [number % 3 for number in range(12)])


def epoch_of(domain: Domain, epoch: int, workers: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    sampler = EpochSampler(range(len(domain)), len(domain), seed)
    sampler.epoch = epoch
    dataset = UnlabelledImages(domain, train_transform(AUGMENTATION), seed)
    batches = list(DataLoader(dataset, 4, sampler=sampler, num_workers=workers))
    return torch.cat([indices for indices, _ in batches]), torch.cat([images for _, images in batches])


def test_adaptation_sees_index_and_image_only(domain: Domain) -> None:
    index, image = UnlabelledImages(domain, evaluation_transform(AUGMENTATION))[5]
    assert index == 5
    assert image.shape == (3, 28, 28)


def test_source_sees_labels(domain: Domain) -> None:
    assert LabelledImages(domain, evaluation_transform(AUGMENTATION))[5][1] == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_an_epoch_is_the_same_for_any_number_of_workers(domain: Domain, workers: int) -> None:
    for alone, parallel in zip(epoch_of(domain, 3, 0), epoch_of(domain, 3, workers), strict=True):
        assert torch.equal(alone, parallel)


def test_epochs_and_seeds_differ_in_order_and_augmentation(domain: Domain) -> None:
    indices, images = epoch_of(domain, 0, 0)
    for other_indices, other_images in (epoch_of(domain, 1, 0), epoch_of(domain, 0, 0, seed=1)):
        assert sorted(other_indices.tolist()) == list(range(12))
        assert not torch.equal(indices, other_indices)
        assert not torch.equal(images[indices.argsort()], other_images[other_indices.argsort()])


def test_loading_leaves_the_global_random_state_alone(domain: Domain) -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    epoch_of(domain, 0, 0)
    torch.randperm(1)
    torch.manual_seed(5)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_longer_epoch_repeats_the_images_in_new_orders() -> None:
    sampler = EpochSampler(range(5), 5, seed=0, length=12)
    keys = list(sampler)
    assert len(keys) == len(set(keys)) == 12
    assert all(sorted(key % 5 for key in keys[start : start + 5]) == list(range(5)) for start in (0, 5))
    sampler.epoch = 1
    assert not set(keys) & set(sampler)


@pytest.mark.parametrize(("fraction", "held"), [(0.0, 0), (0.1, 10), (0.5, 50), (0.999, 99)])
def test_hold_out_splits_without_overlap(fraction: float, held: int) -> None:
    kept, held_out = hold_out(100, fraction, seed=0)
    assert len(held_out) == held
    assert sorted([*kept.tolist(), *held_out.tolist()]) == list(range(100))
    assert torch.equal(hold_out(100, fraction, seed=0)[1], held_out)


@pytest.mark.parametrize(("num_samples", "fraction", "held"), [(4, 0.1, 1), (2, 1e-9, 1), (1, 0.5, 0), (4, 0.0, 0)])
def test_a_small_hold_out_has_an_image(num_samples: int, fraction: float, held: int) -> None:
    assert [len(part) for part in hold_out(num_samples, fraction, seed=0)] == [num_samples - held, held]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": 0}, "image_size"),
        ({"resize_size": 0}, "resize_size"),
        ({"crop_fraction": 0.0}, "crop_fraction"),
        ({"crop_fraction": 1.5}, "crop_fraction"),
        ({"norm_mean": (0.5, 0.5), "norm_std": (0.5, 0.5)}, "norm_mean"),
        ({"norm_mean": (0.5,)}, "norm_mean"),
        ({"norm_mean": (0.5, float("nan"), 0.5)}, "norm_mean"),
        ({"norm_std": (0.0, 0.0, 0.0)}, "norm_std"),
        ({"scale": (2.0, 1.0)}, "scale"),
        ({"scale": (0.0, 1.0)}, "scale"),
        ({"padding": -1}, "padding"),
        ({"rotation": 181.0}, "rotation"),
        ({"rotation": float("nan")}, "rotation"),
        ({"ratio": (2.0, 1.0)}, "ratio"),
        ({"ratio": (1.0, float("nan"))}, "ratio"),
    ],
)
def test_transforms_out_of_range(options: dict, message: str) -> None:
    with pytest.raises(UserError, match=f"`{message}`"):
        TransformOptions(**options)


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "CMYK", "RGBA", "LA", "1", "I;16", "F"])
def test_every_kind_of_picture_becomes_rgb(tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("picture.tif" if mode in ("F", "CMYK") else "picture.png")
    source = (
        Image.new("I;16", (8, 8), 40_000) if mode == "I;16" else Image.new("RGB", (8, 8), (200, 100, 50)).convert(mode)
    )
    source.save(path)
    assert load_image(str(path)).mode == "RGB"


def test_sixteen_bit_pictures_keep_their_range(tmp_path: Path) -> None:
    path = tmp_path / "deep.png"
    Image.new("I;16", (4, 4), 32_768).save(path)
    assert load_image(str(path)).getpixel((0, 0)) == (127, 127, 127)


@pytest.mark.parametrize("content", [b"", b"not an image", b"\x89PNG\r\n\x1a\n"])
def test_what_cannot_be_decoded_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.png"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"broken\.png: cannot be decoded"):
        load_image(str(path))


def test_truncated_and_missing_pictures_are_named(tmp_path: Path) -> None:
    path = tmp_path / "half.jpg"
    Image.effect_noise((64, 64), 50).convert("RGB").save(path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(UserError, match=r"half\.jpg: cannot be decoded"):
        load_image(str(path))
    with pytest.raises(UserError, match=r"none\.jpg: file not found"):
        load_image(str(tmp_path / "none.jpg"))


def test_what_is_no_picture_is_named_without_the_library_that_tried(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("text")
    with pytest.raises(UserError, match=r"text\.png: cannot be decoded \(it is no JPEG, PNG, BMP, GIF, TIFF, .*\)"):
        load_image(str(tmp_path / "text.png"))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_regular_file_is_named_and_not_waited_for(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "other.png")
    with pytest.raises(UserError, match=r"other\.png: it is no regular file"):
        load_image(str(tmp_path / "other.png"))
    Image.new("RGB", (4, 4)).save(tmp_path / "picture.png")
    domain = Domain.of_files("d", [str(tmp_path / "other.png"), str(tmp_path / "picture.png")])
    assert without_unreadable(domain).positions.tolist() == [1]


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a.png").touch()
    monkeypatch.setattr("builtins.open", denied)
    with pytest.raises(UserError, match=r"a\.png: cannot be read \(Permission denied\)"):
        load_image(str(tmp_path / "a.png"))


def test_exif_orientation_is_not_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (16, 8)).save(tmp_path / "turned.jpg", exif=exif)
    assert load_image(str(tmp_path / "turned.jpg")).size == (16, 8)


def test_of_an_animated_picture_the_first_frame_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "moving.gif"
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(path, save_all=True, append_images=frames[1:])
    assert load_image(str(path)).getpixel((0, 0)) == (255, 0, 0)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_picture_with_values_that_are_not_finite_is_refused(tmp_path: Path, value: float) -> None:
    path = tmp_path / "float.tif"
    Image.new("F", (4, 4), value).save(path)
    with pytest.raises(UserError, match=r"float\.tif: cannot be decoded \(it holds values that are not finite\)"):
        load_image(str(path))


def test_a_huge_picture_is_refused_before_it_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.png"
    Image.new("L", (200, 200)).save(path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10_000)
    with pytest.raises(UserError, match=r"bomb\.png: cannot be decoded .*limit"):
        load_image(str(path))


@pytest.mark.parametrize("resizing", ["default", "cen.crop", "ran.crop", "keep-ratio"])
def test_train_resizings_give_the_crop(resizing: str) -> None:
    image = Image.new("RGB", (300, 200))
    assert train_transform(TransformOptions(train_resizing=resizing))(image).shape == (3, 224, 224)


def test_padding_shifts_by_up_to_as_much() -> None:
    image = Image.fromarray(np.full((10, 10, 3), 255, np.uint8))
    options = TransformOptions(
        "res.", resize_size=10, padding=2, horizontal_flip=False, norm_mean=(0.0,), norm_std=(1.0,)
    )
    transform = train_transform(options)
    lit = {tuple(int(transform(image)[0].amax(axis).sum()) for axis in (0, 1)) for _ in range(300)}
    assert lit == {(width, height) for width in (8, 9, 10) for height in (8, 9, 10)}


def test_rotation_turns_either_way_by_up_to_as_much() -> None:
    pixels = np.zeros((41, 41, 3), np.uint8)
    pixels[20, 39] = 255
    options = TransformOptions(
        "res.", resize_size=41, rotation=30.0, horizontal_flip=False, norm_mean=(0.0,), norm_std=(1.0,)
    )
    transform = train_transform(options)
    spots = [divmod(int(transform(Image.fromarray(pixels))[0].argmax()), 41) for _ in range(100)]
    angles = [math.degrees(math.atan2(20 - row, column - 20)) for row, column in spots if (row, column) != (0, 0)]
    assert -33 < min(angles) < -15
    assert 15 < max(angles) < 33


def test_plain_resizing_and_normalisation() -> None:
    options = TransformOptions(
        train_resizing="res.", val_resizing="res.", resize_size=10, norm_mean=(0.5,) * 3, norm_std=(0.5,) * 3
    )
    image = Image.new("RGB", (30, 20), (255, 0, 0))
    tensor = evaluation_transform(options)(image)
    assert tensor.shape == (3, 10, 10)
    assert tensor.amin(dim=(1, 2)).tolist() == [1.0, -1.0, -1.0]


@pytest.mark.parametrize("name", ["train_resizing", "val_resizing"])
def test_unknown_resizing(name: str) -> None:
    with pytest.raises(UserError, match=f"unknown value of `{name}`: 'rez.'; did you mean 'res.'"):
        TransformOptions(**{name: "rez."})


def test_a_picture_that_another_program_would_decode_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, path = tmp_path / "victim", tmp_path / "picture.jpg"
    ghostscript = tmp_path / "gs"
    ghostscript.write_text(f"#!/bin/sh\ntouch {victim}\n")
    ghostscript.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    Image.new("RGB", (8, 8)).save(path, format="EPS")
    with suppress(OSError):  # the program leaves no picture
        Image.open(path).load()
    assert victim.exists()
    victim.unlink()
    with pytest.raises(UserError, match=r"picture\.jpg: cannot be decoded"):
        load_image(str(path))
    assert not victim.exists()
