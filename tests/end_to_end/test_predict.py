"""``predict`` answers for each image out of a run directory alone, the same in every format."""

import csv
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.domains_on_disk import CLASSES
from tests.end_to_end.killable import finish_in_two
from tllib_ancon import predict
from tllib_ancon.cli.main import main

Words = Callable[..., list[str]]


@pytest.fixture
def pictures(domains: Path, tmp_path: Path) -> Path:
    """A tree of any depth."""
    return Path(shutil.copytree(domains / "dark", tmp_path / "pictures" / "deep" / "er")).parents[1]


@pytest.fixture
def words(source_checkpoint: Path, pictures: Path, tmp_path: Path) -> Words:
    def words(out: str = "out.csv", *more: str) -> list[str]:
        rest = ["--checkpoint", str(source_checkpoint), "-j", "0", "--quiet", "--out", str(tmp_path / out)]
        return ["predict", str(pictures), *rest, *more]

    return words


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_row_a_picture_and_no_flag_again(source_checkpoint: Path, domains: Path, tmp_path: Path, capsys) -> None:
    run, out, pictures = source_checkpoint.parents[1], tmp_path / "out.csv", domains / "bright"
    rest = ["--checkpoint", str(run), "--out", str(out), "-j", "0"]
    assert main(["predict", str(pictures), *rest]) == 0
    found = rows(out)
    assert list(found[0]) == ["path", "class", "confidence", "error"]
    assert len(found) == 60
    assert {row["class"] for row in found} <= set(CLASSES)
    assert np.mean([Path(row["path"]).parent.name == row["class"] for row in found]) > 0.9
    assert "60 images; predictions in" in capsys.readouterr().err
    answers = predict(run, pictures, workers=0)
    assert [CLASSES[label] for label in answers.labels] == [row["class"] for row in found]
    np.testing.assert_allclose(answers.probabilities.max(1), [float(row["confidence"]) for row in found], rtol=1e-5)
    assert list(tmp_path.glob(".*")) == []
    assert main(["predict", found[0]["path"], *rest, "--overwrite"]) == 0
    assert [(row["path"], row["class"]) for row in rows(out)] == [(found[0]["path"], found[0]["class"])]


def test_every_format_says_the_same(words: Words, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: pip install '.[parquet]'")
    for ending in ("csv", "parquet", "npz"):
        assert main(words(f"out.{ending}", "--probabilities")) == 0
    listed = rows(tmp_path / "out.csv")
    table = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    with np.load(tmp_path / "out.npz", allow_pickle=False) as arrays:
        assert arrays["paths"].tolist() == [row["path"] for row in listed] == [row["path"] for row in table]
        names = arrays["classes"][arrays["labels"]].tolist()
        assert names == [row["class"] for row in listed] == [row["class"] for row in table]
        for number, name in enumerate(arrays["classes"]):
            column = [float(row[f"probability_{name}"]) for row in listed]
            np.testing.assert_allclose(arrays["probabilities"][:, number], column, rtol=1e-6)
            np.testing.assert_allclose(column, [row[f"probability_{name}"] for row in table], rtol=1e-6)


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_picture_that_cannot_be_read_has_a_row(words: Words, pictures: Path, tmp_path: Path, workers: str) -> None:
    assert main(words("whole.csv", "-j", workers)) == 0
    paths = sorted(pictures.rglob("*.png"))
    broken = [str(paths[0]), str(paths[13])]
    for path in broken:
        Path(path).write_bytes(b"no picture")
    assert main(words("out.csv", "-j", workers)) == 0
    found = rows(tmp_path / "out.csv")
    assert [row["path"] for row in found if row["error"]] == broken
    assert all("cannot be decoded" in row["error"] and not row["class"] for row in found if row["error"])
    readable = [row for row in found if not row["error"]]
    assert readable == [row for row in rows(tmp_path / "whole.csv") if row["path"] not in broken]


def test_a_checkpoint_without_its_run_needs_its_architecture(
    words: Words, source_checkpoint: Path, tmp_path: Path, capsys
) -> None:
    shutil.copy(source_checkpoint, tmp_path / "alone.pth")
    given = words("out.csv", "--checkpoint", str(tmp_path / "alone.pth"), "-a", "small_cnn", "--val-resizing", "res.")
    given.remove("--quiet")
    assert main([*given, "--resize-size", "16"]) == 0
    assert "lies in no run directory; assumed:" in capsys.readouterr().err
    assert {row["class"] for row in rows(tmp_path / "out.csv")} <= {"0", "1", "2"}


def test_two_processes_write_what_one_writes(words: Words, tmp_path: Path) -> None:
    assert main(words("one.csv")) == 0
    finish_in_two(words("two.csv"))
    assert (tmp_path / "two.csv").read_text() == (tmp_path / "one.csv").read_text()
