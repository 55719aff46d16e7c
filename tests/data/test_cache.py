from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from tests.data.test_images import AUGMENTATION, domain
from tllib_ancon.data import cache
from tllib_ancon.data.cache import CachedImages
from tllib_ancon.data.decoding import load_image
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import UnlabelledImages
from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.data.paths import Paths
from tllib_ancon.data.resizing import Resizing
from tllib_ancon.data.sampling import EpochSampler
from tllib_ancon.data.transforms import ImageTransform, evaluation_transform, train_transform
from tllib_ancon.errors import UserError

__all__ = ["domain"]
SQUARE = Resizing(24)
SMALLER = replace(AUGMENTATION, image_size=21)  # the pictures have 32 pixels, these are first resized to 24


@contextlib.contextmanager
def no_bar(title: str, steps: int) -> Iterator[SimpleNamespace]:
    yield SimpleNamespace(update=lambda: None)


def with_cache(folder: Path, domain: Domain, resizing: Resizing = SQUARE, workers: int = 0) -> Domain:
    return cache.cached(domain, folder, [resizing], workers, no_bar)


def cached(folder: Path, domain: Domain, resizing: Resizing = SQUARE) -> CachedImages:
    return with_cache(folder, domain, resizing).caches[resizing]


def shown(folder: Path) -> list[Path]:
    """All but the lock of those who build."""
    return [path for path in folder.iterdir() if path.name != ".lock"]


def tensors(domain: Domain, transform: ImageTransform, workers: int) -> torch.Tensor:
    sampler = EpochSampler(range(len(domain)), len(domain), seed=3)
    loader = ImageLoader(UnlabelledImages(domain, transform, seed=3), 5, workers, sampler)
    epochs = []
    for sampler.epoch in range(2):
        epochs += [images for _, images in loader]
    return torch.cat(epochs)


@pytest.mark.parametrize("make", [train_transform, evaluation_transform])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("resizing", ["default", "keep-ratio"])
def test_tensors_are_the_same_with_and_without_it(tmp_path, domain, make, workers: int, resizing: str) -> None:
    for number, path in enumerate(domain.paths[:4]):
        load_image(path).resize((30 + 10 * number, 40)).save(path)
    transform = make(replace(SMALLER, train_resizing=resizing, val_resizing=resizing))
    kept = with_cache(tmp_path / "cache", domain, transform.resizing, workers)
    expected = tensors(domain, transform, workers)
    assert torch.equal(tensors(kept, transform, workers), expected)
    for path in domain.paths:
        os.remove(path)
    assert torch.equal(tensors(kept, transform, workers), expected)
    some = kept.subset([7, 3, 3])
    assert torch.equal(tensors(some, transform, workers), tensors(some, transform, 0))


def test_it_is_written_once(tmp_path: Path, domain: Domain, monkeypatch: pytest.MonkeyPatch) -> None:
    cached(tmp_path / "cache", domain)
    monkeypatch.setattr(cache, "_build", None)
    cached(tmp_path / "cache", domain)


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
    assert np.array_equal(turned(0), np.asarray(load_image(path).resize((24, 24), Image.Resampling.BICUBIC)))


def test_repeated_images_are_kept_once(tmp_path: Path, domain: Domain) -> None:
    images = cached(tmp_path / "cache", domain.subset([0, 1, 0, 0]))
    assert len(images.pixels) == 2 * 24 * 24 * 3


@pytest.mark.parametrize("name", [cache.PIXELS, cache.INDEX])
@pytest.mark.parametrize("damage", ["missing", "short", "not an array", "another array", "pickled"])
def test_a_cache_that_is_not_whole_is_refused(tmp_path: Path, domain: Domain, name: str, damage: str) -> None:
    file = cached(tmp_path / "cache", domain).folder / name
    content = file.read_bytes()
    file.unlink()
    if damage == "short":
        file.write_bytes(content[:-1])
    elif damage == "not an array":
        file.write_bytes(b"pixels")
    elif damage == "another array":
        np.save(file, np.zeros((3, 3)))
    elif damage == "pickled":
        np.save(file, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(UserError, match=r"image cache .* is damaged"):
        cached(tmp_path / "cache", domain)


def test_a_changed_byte_is_noticed_where_it_is_used(tmp_path: Path, domain: Domain) -> None:
    file = cached(tmp_path / "cache", domain).folder / cache.PIXELS
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    images = cached(tmp_path / "cache", domain)
    images(0)
    with pytest.raises(UserError, match=r"damaged .*image 11 changed"):
        images(11)


def test_an_interrupted_build_leaves_no_cache(tmp_path: Path, domain: Domain) -> None:
    Path(domain.paths[7]).write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"7\.png: cannot be decoded"):
        cached(tmp_path / "cache", domain)
    assert not shown(tmp_path / "cache")


def test_a_full_disk_is_an_error_that_says_how_much_was_wanted(tmp_path, domain, monkeypatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=12 * 24 * 24 * 3 - 1))
    with pytest.raises(UserError, match=r"GB cannot be written .*No space left"):
        cached(tmp_path / "cache", domain)
    assert not shown(tmp_path / "cache")


def build(folder: Path, domain: Domain) -> None:
    cached(folder, domain)


def test_two_processes_may_build_it_at_once(tmp_path: Path, domain: Domain) -> None:
    folder = tmp_path / "cache"
    processes = [multiprocessing.get_context("fork").Process(target=build, args=(folder, domain)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    (only,) = shown(folder)
    assert not only.name.startswith(".")
    assert cached(folder, domain)(4).shape == (24, 24, 3)


def test_the_slower_of_two_builders_takes_what_the_faster_left(tmp_path, domain, monkeypatch) -> None:
    decode_all = cache._decode_all

    def overtaken(*args):
        monkeypatch.setattr(cache, "_decode_all", decode_all)
        cached(tmp_path / "cache", domain)
        return decode_all(*args)

    monkeypatch.setattr(cache, "_decode_all", overtaken)
    assert cached(tmp_path / "cache", domain)(0).shape == (24, 24, 3)
    assert len(shown(tmp_path / "cache")) == 1


def test_a_spawned_worker_maps_the_file_and_gets_no_copy(tmp_path: Path, domain: Domain) -> None:
    images = cached(tmp_path / "cache", domain)
    sent = pickle.dumps(images)
    assert len(sent) < 4000
    assert pickle.loads(sent)(3).tobytes() == images(3).tobytes()


def test_two_datasets_of_equal_names_sizes_and_times_have_caches_of_their_own(tmp_path: Path) -> None:
    domains = []
    for name, colour in (("one", 10), ("other", 200)):
        path = tmp_path / name / "a.bmp"
        path.parent.mkdir()
        Image.new("RGB", (8, 8), (colour, 0, 0)).save(path)
        os.utime(path, ns=(0, 0))
        domains.append(Domain.of_files(name, Paths([str(path)], path.parent), ["x"]))
    images = [cached(tmp_path / "cache", domain) for domain in domains]
    assert [int(image(0)[0, 0, 0]) for image in images] == [10, 200]


def test_a_picture_replaced_by_one_of_its_size_and_time_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.bmp"
    domain = Domain.of_files("d", [str(path)], ["x"])
    for colour in (10, 200):
        Image.new("RGB", (8, 8), (colour, 0, 0)).save(path)
        os.utime(path, ns=(0, 0))
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
from tllib_ancon.data.paths import Paths
from tllib_ancon.data.resizing import Resizing
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


@pytest.mark.parametrize(("number", "workers"), [(signal.SIGTERM, 0), (signal.SIGTERM, 2), (signal.SIGKILL, 2)])
def test_a_killed_build_leaves_nothing_or_what_the_next_one_removes(tmp_path, domain, number, workers: int) -> None:
    folder = tmp_path / "cache"
    words = [sys.executable, "-c", KILLED, str(folder), str(workers), *domain.paths]
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
            if not list(folder.glob(".*px-*")):
                break
            time.sleep(0.1)
    assert not list(folder.glob(".*px-*"))
    assert live(0).shape == (24, 24, 3)
