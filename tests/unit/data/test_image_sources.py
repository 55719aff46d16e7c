"""Each image of a file or a Python object is decoded to the expected pixels, or is named with the reason."""

import io
import os
import re
from contextlib import suppress

import pytest
import torch
from PIL import EpsImagePlugin, Image
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from tests.support.refusals import one_line
from tests.unit.data.conftest import touch
from tllib_ancon.data.image_files import jpeg, load_image
from tllib_ancon.data.open import as_domain

RED = Image.new("RGB", (4, 4), (255, 0, 0))


def turned():
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def test_an_image_stays_as_it_lies_in_its_file(tmp_path):
    path = str(tmp_path / "lying.jpg")
    Image.new("RGB", (16, 8)).save(path, exif=turned())
    assert load_image(path).size == (16, 8)


def test_people_see_a_small_jpeg_that_is_upright_and_without_metadata():
    picture = Image.new("RGB", (3200, 1000), (200, 100, 50))
    picture.paste((0, 0, 0), (0, 0, 1600, 1000))
    content = io.BytesIO()
    picture.save(content, "JPEG", exif=turned(), comment=b"secret")
    shown = Image.open(io.BytesIO(jpeg(Image.open(content))))
    assert shown.format == "JPEG"
    assert shown.mode == "RGB"
    assert shown.size == (500, 1600)
    assert "secret" not in str(shown.info)
    assert not shown.getexif()
    assert max(shown.getpixel((250, 100))) < 10
    assert shown.getpixel((250, 1500)) == pytest.approx((200, 100, 50), abs=4)


def half(path):
    Image.effect_noise((64, 64), 50).convert("RGB").save(path)
    path.write_bytes(path.read_bytes()[:-200])


@pytest.mark.parametrize(
    ("name", "make", "reason"),
    [
        ("a.png", lambda path: path.write_text("text"), "is no JPEG, PNG, .* that Pillow reads"),
        ("a.jpg", half, r"cannot be read as an image \(image file is truncated"),
        ("a.png", lambda path: None, r"cannot be read as an image \(No such file or directory\)"),
    ],
)
def test_what_cannot_be_decoded_is_named(tmp_path, name, make, reason):
    make(tmp_path / name)
    with one_line(f"{re.escape(name)} {reason}.*`loader`.*`skip_corrupt=True`"):
        load_image(str(tmp_path / name))
    RED.save(tmp_path / "red.png")
    source = as_domain([str(tmp_path / name), str(tmp_path / "red.png")], skip_corrupt=True)
    assert source.positions.tolist() == [1]


def test_an_image_that_another_program_would_decode_is_refused(tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    path = tmp_path / "image.jpg"
    ghostscript = tmp_path / "gs"
    ghostscript.write_text(f"#!/bin/sh\ntouch {victim}\n")
    ghostscript.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    Image.new("RGB", (8, 8)).save(path, format="EPS")
    with suppress(OSError):  # the program leaves no image
        Image.open(path).load()
    assert victim.exists()
    victim.unlink()
    with one_line(r"image\.jpg is no"):
        load_image(str(path))
    assert not victim.exists()


def test_a_dataset_without_length():
    class Stream(IterableDataset):
        def __iter__(self):
            yield RED

    for images in (Stream(), DataLoader(TensorDataset(torch.zeros(4, 3, 2, 2))), []):
        with one_line("has no items by number, .*; pass a list, an array or a map-style dataset that is not empty"):
            as_domain(images)


def test_paths_and_a_list_of_images(tmp_path):
    touch(tmp_path, "a.png", "b.png")
    paths = [tmp_path / "b.png", str(tmp_path / "a.png")]
    (tmp_path / "target.txt").write_text("b.png 1\na.png 0\n")
    for domain in (as_domain(paths, labels=[1, 0]), as_domain(tmp_path / "target.txt")):
        assert list(domain.paths) == [str(path) for path in paths]
        assert domain.labels.tolist() == [1, 0]
    with one_line("1 of 2 images are missing, .*none.png first; correct the paths, or pass `skip_corrupt=True`"):
        as_domain([paths[0], tmp_path / "none.png"])
