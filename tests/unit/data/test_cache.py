"""A cache gives the same tensors as the files, is shared by processes, and notices bytes that changed."""

import os
import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from tests.support.refusals import one_line
from tests.unit.data.conftest import epoch_of
from tllib_ancon.data.cache import cached, cached_in_memory
from tllib_ancon.data.image_files import load_image
from tllib_ancon.data.transforms import Preprocessing, Resizing

SQUARE = Resizing(24)


@pytest.fixture(params=["memory", "file"])
def store(request, tmp_path):
    if request.param == "file":
        return lambda domain, resizing: cached(domain, tmp_path / "cache", [resizing])
    return lambda domain, resizing: cached_in_memory(domain, [resizing], 10**6, [])


def of_file(folder, domain, resizing=SQUARE):
    return cached(domain, folder, [resizing]).cached[resizing]


def tensors(domain, transform):
    return torch.cat([epoch_of(domain, transform, epoch=epoch)[1] for epoch in (0, 1)])


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (Preprocessing.for_training, "default"),
        (Preprocessing.for_training, "keep-ratio"),
        (Preprocessing.for_evaluation, "keep-ratio"),
    ],
)
def test_tensors_are_the_same_once_images_are_read(store, domain, make, kind):
    load_image(domain.paths[0]).resize((20, 50)).save(domain.paths[0])
    load_image(domain.paths[1]).resize((40, 30)).save(domain.paths[1])
    options = Preprocessing(train_resizing=kind, val_resizing=kind, image_size=21, scale=(0.3, 1.0))
    transform = make(options)
    expected = tensors(domain, transform)
    kept = store(domain.subset([*range(12), 3]), transform.resizing)
    assert torch.equal(tensors(kept.subset(range(12)), transform), expected)
    for path in domain.paths[kind == "keep-ratio" :]:  # the first is longer than is kept
        os.remove(path)
    assert torch.equal(tensors(kept.subset(range(12)), transform), expected)
    if kind == "keep-ratio":
        os.remove(domain.paths[0])
        with one_line(r"0\.png.*pass `skip_corrupt=True`"):
            kept.image(0, transform.resizing)


def test_whatever_decides_its_content_names_it(tmp_path, domain):
    folder = tmp_path / "cache"
    before = of_file(folder, domain)(0)
    of_file(folder, domain, Resizing(20))
    of_file(folder, domain, Resizing(24, keep_ratio=True))
    of_file(folder, domain.subset([0, 1, 0, 0]))
    path = domain.paths[0]
    times = os.stat(domain.paths[0])
    load_image(path).rotate(90).save(tmp_path / "turned.bmp")
    os.replace(tmp_path / "turned.bmp", path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    turned = of_file(folder, domain)(0)
    assert not np.array_equal(turned, before)
    assert np.array_equal(turned, np.asarray(load_image(path).resize((24, 24), Image.Resampling.BICUBIC)))
    assert len(list(folder.iterdir())) == 5


@pytest.mark.parametrize("damage", ["short", "one byte", "sizes"])
def test_an_image_whose_bytes_changed_is_decoded_again(tmp_path, domain, damage):
    images = of_file(tmp_path / "cache", domain)
    expected = [images(position).copy() for position in range(12)]
    content = bytearray(images.store.read_bytes())
    if damage == "short":
        del content[-1:]
    else:
        content[-1 if damage == "one byte" else 0] ^= 1
    images.store.write_bytes(content)
    again = of_file(tmp_path / "cache", domain)
    assert all(np.array_equal(again(position), expected[position]) for position in range(12))
    assert len(pickle.dumps(again)) < 4000  # a spawned worker maps the file and gets no copy
