"""``predict`` answers for each image out of a run directory alone, the same in every format."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support.domains_on_disk import CLASSES
from tllib_ancon import predict
from tllib_ancon.cli.main import main


@pytest.fixture
def pictures(domains, tmp_path):
    """A tree of any depth."""
    shutil.copytree(domains / "dark", tmp_path / "pictures" / "deep" / "er")
    return tmp_path / "pictures"


@pytest.fixture
def words(source_checkpoint, pictures, tmp_path):
    def words(out="out.csv", *more, checkpoint=source_checkpoint):
        rest = ["--checkpoint", str(checkpoint), "-j", "0", "--quiet", "--out", str(tmp_path / out)]
        return ["predict", str(pictures), *rest, *more]

    return words


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_row_a_picture_and_no_flag_again(source_checkpoint, domains, tmp_path, capsys):
    run = source_checkpoint.parents[1]
    out = tmp_path / "out.csv"
    rest = ["--checkpoint", str(run), "--out", str(out), "-j", "0"]
    assert main(["predict", str(domains / "bright"), *rest]) == 0
    assert "60 images; predictions in" in capsys.readouterr().err
    found = rows(out)
    assert list(found[0]) == ["path", "class", "confidence", "error"]
    right = [Path(row["path"]).parent.name == row["class"] for row in found]
    assert len(right) == 60
    assert np.mean(right) > 0.9
    predictions = predict(run, domains / "bright", workers=0)
    assert [CLASSES[label] for label in predictions.labels] == [row["class"] for row in found]
    confidences = [float(row["confidence"]) for row in found]
    np.testing.assert_allclose(predictions.probabilities.max(1), confidences, rtol=1e-5)
    assert list(tmp_path.glob(".*")) == []
    first = found[0]
    assert main(["predict", first["path"], *rest, "--overwrite"]) == 0
    (alone,) = rows(out)
    assert alone["path"] == first["path"]
    assert alone["class"] == first["class"]


def test_every_format_says_the_same(words, tmp_path, capsys):
    for ending in ("csv", "npz"):
        assert main(words(f"out.{ending}", "--probabilities", "--no-quiet")) == 0
        assert "labels" not in capsys.readouterr().err
    in_csv = rows(tmp_path / "out.csv")
    with np.load(tmp_path / "out.npz", allow_pickle=False) as file:
        arrays = dict(file)
    paths = [row["path"] for row in in_csv]
    names = [row["class"] for row in in_csv]
    assert arrays["paths"].tolist() == paths
    assert arrays["classes"][arrays["labels"]].tolist() == names
    for number, name in enumerate(arrays["classes"]):
        column = [float(row[f"probability_{name}"]) for row in in_csv]
        np.testing.assert_allclose(arrays["probabilities"][:, number], column, rtol=1e-6)


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_picture_that_cannot_be_read_has_a_row(words, pictures, tmp_path, workers, refused):
    assert main(words("whole.csv", "--probabilities", "-j", workers)) == 0
    assert "whole.csv exists; pass --overwrite to replace it, or another --out" in refused(words("whole.csv"))
    paths = sorted(map(str, pictures.rglob("*.png")))
    broken = [paths[0], paths[13]]
    for path in broken:
        Path(path).write_bytes(b"no picture")
    assert main(words("out.csv", "--probabilities", "-j", workers)) == 0
    unread = [row for row in rows(tmp_path / "out.csv") if row["error"]]
    assert [row["path"] for row in unread] == broken
    for row in unread:
        assert "is no JPEG" in row["error"]
        assert "skip" not in row["error"]  # predict has left it out already
        assert not row["class"]
    readable = [row for row in rows(tmp_path / "out.csv") if not row["error"]]
    assert readable == [row for row in rows(tmp_path / "whole.csv") if row["path"] not in broken]
    for path in paths:
        Path(path).write_bytes(b"no picture")
    message = f"not one of 48 images has a prediction; repair them or give others: image {paths[0]} is no JPEG"
    assert message in refused(words("none.csv", "-j", workers))
