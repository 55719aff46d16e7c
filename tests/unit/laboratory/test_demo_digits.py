"""The demo's digits: the same images on every run, of all classes, readable, without a download, never half-written."""

import socket
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tllib_ancon.data.open import open_domain
from tllib_ancon.laboratory import digits

pytest.importorskip("matplotlib")
load_digits = pytest.importorskip("sklearn.datasets").load_digits


def test_digits_are_the_same_on_every_run_and_all_different():
    rendered, again = ([*digits.rendered_digits(images_per_class=12)] for _ in range(2))
    assert rendered == again
    assert [label for _, label in rendered] == [label for label in range(10) for _ in range(12)]
    assert len({image.tobytes() for image, _ in rendered}) == 120
    image, label = next(digits.handwritten_digits())
    values = load_digits().images[label]
    small = Image.fromarray(np.rint(values * 255 / 16).astype(np.uint8))
    assert np.array_equal(np.asarray(image), np.asarray(small.resize((32, 32), Image.Resampling.BILINEAR)))


def test_both_domains_are_written_once_and_whole_and_no_address_is_asked_for(tmp_path, few_digits, monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", None)  # without which nothing can be downloaded
    root = tmp_path / "digits"
    digits.write_demo_domains(root)
    rendered = open_domain(root, "ImageList", ["rendered"])
    handwritten = open_domain(root, "ImageList", ["handwritten"])
    assert len(rendered) == few_digits
    assert len(handwritten) == few_digits
    assert rendered.classes == [*"0123456789"]
    assert handwritten.classes == rendered.classes
    assert rendered.labels.tolist() == [label for label in range(10) for _ in range(20)]
    removed = Path(rendered.paths[0])
    removed.unlink()
    digits.write_demo_domains(root)  # complete: nothing is written again
    assert not removed.exists()
    (root / "image_list" / "classes.txt").unlink()
    digits.write_demo_domains(root)
    assert removed.is_file()
