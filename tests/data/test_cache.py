"""Caches of resized images: the same tensors, one build, and what is damaged, killed or replaced."""

import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from tests.data.conftest import epoch_of, with_cache
from tllib_ancon.data import cache
from tllib_ancon.data.cache import ResizedImages
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import Paths, load_image
from tllib_ancon.data.transforms import (
    ImageTransform,
    Resizing,
    TransformOptions,
    evaluation_transform,
    train_transform,
)
from tllib_ancon.errors import UserError

pytestmark = pytest.mark.posix

SQUARE = Resizing(24)


def cached(folder: Path, domain: Domain, resizing: Resizing = SQUARE) -> ResizedImages:
    return with_cache(folder, domain, resizing).images.kept[resizing]


def shown(folder: Path) -> list[Path]:
    """All but the locks of those who build."""
    return [path for path in folder.iterdir() if path.suffix != ".lock"]


def tensors(domain: Domain, transform: ImageTransform, workers: int) -> torch.Tensor:
    return torch.cat([epoch_of(domain, transform, workers, epoch=epoch)[1] for epoch in (0, 1)])


@pytest.mark.parametrize(("make", "workers"), [(train_transform, 0), (train_transform, 2), (evaluation_transform, 0)])
def test_tensors_are_the_same_with_and_without_it(tmp_path: Path, domain: Domain, make, workers: int) -> None:
    for number, path in enumerate(domain.paths[:4]):
        load_image(path).resize((30 + 10 * number, 40)).save(path)
    transform = make(
        TransformOptions(train_resizing="keep-ratio", val_resizing="keep-ratio", image_size=21, scale=(0.3, 1.0))
    )  # the images have 32 pixels, these are first resized to 24
    kept = with_cache(tmp_path / "cache", domain, transform.resizing, workers=workers)
    expected = tensors(domain, transform, workers)
    for path in domain.paths:
        os.remove(path)
    assert torch.equal(tensors(kept, transform, workers), expected)
    some = kept.subset([7, 3, 3])
    assert torch.equal(tensors(some, transform, workers), tensors(some, transform, 0))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["default", "keep-ratio"])
def test_images_stay_in_memory_once_they_are_read(domain: Domain, kind: str, workers: int) -> None:
    load_image(domain.paths[0]).resize((20, 50)).save(domain.paths[0])
    transform = train_transform(TransformOptions(train_resizing=kind, image_size=21, scale=(0.3, 1.0)))
    expected = tensors(domain, transform, workers)
    target = domain.subset([*range(12), 3])
    kept = cache.kept_in_memory(target, [transform.resizing], 10**6, print)
    assert torch.equal(tensors(kept.subset(range(12)), transform, workers), expected)
    for path in domain.paths[kind == "keep-ratio" :]:  # the first is longer than is kept
        os.remove(path)
    assert torch.equal(tensors(kept.subset(range(12)), transform, workers), expected)
    if kind == "keep-ratio":
        os.remove(domain.paths[0])
        with pytest.raises(UserError, match=r"0\.png.*`skip_corrupt=True` leaves"):
            kept.image(0, transform.resizing)
    said: list[str] = []
    assert cache.kept_in_memory(target, [transform.resizing], 10**4, said.append) is target
    assert len(said) == 1


def test_spawned_processes_share_what_is_in_memory(domain: Domain) -> None:
    kept = cache.kept_in_memory(domain, [SQUARE], 10**6, print)
    reader = multiprocessing.get_context("spawn").Process(target=_read, args=(kept,))
    reader.start()
    reader.join(60)
    assert reader.exitcode == 0
    for path in domain.paths:
        os.remove(path)
    assert kept.image(5, SQUARE).shape == (24, 24, 3)


def _read(domain: Domain) -> None:
    for index in range(len(domain)):
        domain.image(index, SQUARE)


def test_whatever_decides_its_content_names_it(tmp_path: Path, domain: Domain) -> None:
    folder = tmp_path / "cache"
    cached(folder, domain)
    cached(folder, domain, Resizing(20))
    cached(folder, domain, Resizing(24, keep_ratio=True))
    cached(folder, domain.subset([0, 1]))
    path = domain.paths[0]
    load_image(path).rotate(90).save(path)
    turned = cached(folder, domain)
    assert len(shown(folder)) == 5
    assert len(cached(folder, domain.subset([0, 1, 0, 0])).pixels) == 2 * 24 * 24 * 3  # repeated images are kept once
    assert np.array_equal(turned(0), np.asarray(load_image(path).resize((24, 24), Image.Resampling.BICUBIC)))


@pytest.mark.parametrize("name", [cache.PIXELS, cache.INDEX])
@pytest.mark.parametrize("damage", ["missing", "short", "another array", "pickled"])
def test_a_cache_that_is_not_whole_is_refused(tmp_path: Path, domain: Domain, name: str, damage: str) -> None:
    file = cached(tmp_path / "cache", domain).folder / name
    content = file.read_bytes()
    file.unlink()
    if damage == "short":
        file.write_bytes(content[:-1])
    elif damage != "missing":
        np.save(file, np.zeros((3, 3)) if damage == "another array" else np.array([{}], dtype=object))
    with pytest.raises(UserError, match=r"cannot be read as an image cache .*delete that folder"):
        cached(tmp_path / "cache", domain)


def test_bytes_are_mapped_and_a_changed_one_is_noticed_where_it_is_used(tmp_path: Path, domain: Domain) -> None:
    file = cached(tmp_path / "cache", domain).folder / cache.PIXELS
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    images = cached(tmp_path / "cache", domain)
    sent = pickle.dumps(images)  # to a worker that is spawned, which maps the file and gets no copy
    assert len(sent) < 4000
    assert pickle.loads(sent)(3).tobytes() == images(3).tobytes()
    with pytest.raises(UserError, match=r"damaged .*image 11 changed"):
        images(11)


def test_a_build_that_fails_leaves_no_cache(tmp_path: Path, domain: Domain, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(domain.paths[7]).write_bytes(b"no image")
    with pytest.raises(UserError, match=r"7\.png: cannot be decoded"):
        cached(tmp_path / "cache", domain)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=12 * 24 * 24 * 3 - 1))
    with pytest.raises(UserError, match=r"no room for the image cache .* of 0\.00 GB"):
        cached(tmp_path / "cache", domain)
    assert not shown(tmp_path / "cache")


def test_two_processes_may_build_it_at_once(tmp_path: Path, domain: Domain) -> None:
    folder = tmp_path / "cache"
    processes = [multiprocessing.get_context("fork").Process(target=cached, args=(folder, domain)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    (only,) = shown(folder)
    assert not only.name.startswith(".")
    assert cached(folder, domain)(4).shape == (24, 24, 3)


def test_datasets_of_equal_names_sizes_and_times_have_caches_of_their_own(tmp_path: Path) -> None:
    for name, colour in (("one", 10), ("other", 200), ("one", 90)):  # the last replaces the first
        path = tmp_path / name / "a.bmp"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8), (colour, 0, 0)).save(path)
        os.utime(path, ns=(0, 0))
        domain = Domain.of_files(name, Paths([str(path)], path.parent))
        assert int(cached(tmp_path / "cache", domain)(0)[0, 0, 0]) == colour


def test_relative_paths_name_their_cache_by_where_they_lead(tmp_path, domain, monkeypatch) -> None:
    cached(tmp_path / "cache", Domain.of_files("d", Paths(domain.paths, tmp_path)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cache, "_build", None)
    cached(tmp_path / "cache", Domain.of_files("d", Paths([f"./{n}.png" for n in range(12)], ".")))


KILLED = """
import contextlib, os, signal, sys, time
from types import SimpleNamespace
from pathlib import Path
from tllib_ancon.data.cache import cached
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.transforms import Resizing
from tllib_ancon.errors import Interrupted

@contextlib.contextmanager
def bar(title, steps):
    yield SimpleNamespace(update=lambda: (print("caching", flush=True), time.sleep(60)))

folder, workers, *paths = sys.argv[1:]
try:
    cached(Domain.of_files("d", paths), folder, [Resizing(24)], int(workers), bar)
except Interrupted as error:
    print(error)
    sys.exit(128 + error.number)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_build_leaves_nothing_or_what_the_next_one_removes(tmp_path, domain, number) -> None:
    folder = tmp_path / "cache"
    words = [sys.executable, "-c", KILLED, str(folder), "2", *domain.paths]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "caching\n"
        assert len(shown(folder)) == 1
        live = cached(folder, domain.subset([0]))  # another build leaves that of a living process alone
        assert len(shown(folder)) == 2
        process.send_signal(number)
        said = process.stdout.read()
    if number == signal.SIGTERM:
        assert process.returncode == 128 + number
        assert "stopped by SIGTERM while images were cached" in said
        assert len(shown(folder)) == 1
    else:
        assert len(shown(folder)) == 2
        for side in range(1, 100):  # workers see within seconds that their parent is gone
            cached(folder, domain, Resizing(side))
            if not any(path.name.startswith(".") for path in shown(folder)):
                break
            time.sleep(0.1)
    assert not any(path.name.startswith(".") for path in shown(folder))
    assert live(0).shape == (24, 24, 3)
