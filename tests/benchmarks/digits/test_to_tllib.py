from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.digits import to_tllib
from tests.toolkit.conftest import requires_tllib


def arrays(number: int, side: int, flat: bool = False, floats: bool = False) -> dict[str, np.ndarray]:
    """``number`` pictures a split; each is its number in every pixel, sorted by class."""
    content = {}
    for split in ("train", "test"):
        pictures = np.arange(number, dtype=np.uint8)[:, None, None] * np.ones((1, side, side), np.uint8)
        content[f"{split}_x"] = pictures.reshape(number, -1) if flat else pictures
        if floats:
            content[f"{split}_x"] = content[f"{split}_x"] / np.float32(255)
        content[f"{split}_y"] = np.sort(np.arange(number) % 10)
    return content


@pytest.mark.parametrize(("flat", "floats"), [(False, False), (True, False), (False, True), (True, True)])
def test_every_picture_is_written_with_its_label(tmp_path, flat: bool, floats: bool) -> None:
    given = arrays(20, 16, flat, floats)
    np.savez(tmp_path / "usps.npz", **given)
    assert to_tllib.main([str(tmp_path / "out"), "--usps", str(tmp_path / "usps.npz")]) == 0
    folder = tmp_path / "out" / "USPS"
    for split in ("train", "test"):
        lines = (folder / "image_list" / f"usps_{split}.txt").read_text().splitlines()
        seen = {}
        for path, label in (line.rsplit(" ", 1) for line in lines):
            assert path.startswith(f"usps_{split}_image/")
            picture = np.asarray(Image.open(folder / path))
            assert picture.shape == (16, 16)
            assert len(np.unique(picture)) == 1
            seen[int(picture[0, 0])] = int(label)
        assert seen == dict(enumerate(given[f"{split}_y"]))
        assert [line.rsplit(" ", 1)[1] for line in lines] != sorted(line.rsplit(" ", 1)[1] for line in lines)


def test_splits_are_mixed_without_losing_a_picture(tmp_path) -> None:
    given = arrays(20, 4)
    given["test_x"] = given["test_x"] + np.uint8(20)
    np.savez(tmp_path / "usps.npz", **given)
    command = [str(tmp_path / "out"), "--usps", str(tmp_path / "usps.npz"), "--resplit-usps", "7"]
    assert to_tllib.main(command) == 0
    seen = {}
    for split, number in (("train", 33), ("test", 7)):
        lines = (tmp_path / "out" / "USPS" / "image_list" / f"usps_{split}.txt").read_text().splitlines()
        assert len(lines) == number
        for path, label in (line.rsplit(" ", 1) for line in lines):
            seen[int(np.asarray(Image.open(tmp_path / "out" / "USPS" / path))[0, 0])] = int(label)
    assert seen == dict(enumerate([*given["train_y"], *given["test_y"]]))


@pytest.mark.parametrize(
    ("more", "message"), [(["--resplit-usps", "40"], "1 to 39 of the 40"), ([], "needs --usps FILE")]
)
def test_a_split_that_cannot_be(tmp_path, capsys, more: list[str], message: str) -> None:
    np.savez(tmp_path / "digits.npz", **arrays(20, 4))
    which = "--usps" if more else "--mnist"
    command = [str(tmp_path / "out"), which, str(tmp_path / "digits.npz"), *(more or ["--resplit-usps", "5"])]
    assert to_tllib.main(command) == 2
    assert message in capsys.readouterr().err


@requires_tllib
def test_the_layout_is_tllibs(tmp_path) -> None:
    from tllib_ancon.data.domains import open_domain

    np.savez(tmp_path / "digits.npz", **arrays(20, 28))
    source = str(tmp_path / "digits.npz")
    assert to_tllib.main([str(tmp_path / "out"), "--mnist", source, "--usps", source, "--most", "5"]) == 0
    for code in ("MNIST", "USPS"):
        for split in ("train", "test"):
            domain = open_domain(tmp_path / "out", "Digits", [code], split)
            assert len(domain) == 5
            assert all(Path(path).is_file() for path in domain.paths)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_y": None}, "but not train_y"),
        ({"train_y": np.arange(20)}, "labels from 0 to 19"),
        ({"train_x": np.zeros((20, 5, 6))}, "expected N squares"),
        ({"train_x": np.full((20, 4, 4), 2.0)}, r"expected bytes or [0, 1]"),
    ],
)
def test_bad_arrays(tmp_path, capsys, change, message: str) -> None:
    content = {name: array for name, array in (arrays(20, 4) | change).items() if array is not None}
    np.savez(tmp_path / "mnist.npz", **content)
    assert to_tllib.main([str(tmp_path / "out"), "--mnist", str(tmp_path / "mnist.npz")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_nothing_to_convert(tmp_path, capsys) -> None:
    assert to_tllib.main([str(tmp_path / "out")]) == 2
    assert to_tllib.main([str(tmp_path / "out"), "--usps", str(tmp_path / "none.npz")]) == 2
    assert "none.npz is not a file" in capsys.readouterr().err
