"""Names of classes and files that are no text, end a line or begin a formula: every file and page shows them."""

import csv
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.certify.serving import served
from tests.report.fabricated import write_run
from tllib_ancon.certifying.session import Comparison, Session
from tllib_ancon.cli.main import main

CLASSES = [b"+b", b"=cmd|x", b"\xff\xfe"]
SHOWN = ["'+b", "'=cmd|x", r"\udcff\udcfe"]


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished adaptation of such classes in ``run``, and its images in ``images``."""
    folder = tmp_path_factory.mktemp("strange")
    generator = np.random.default_rng(0)
    for label, name in enumerate(CLASSES):
        below = os.fsencode(folder / "images") + b"/" + name
        os.makedirs(below)
        for number in range(16):
            pixels = generator.integers(0, 140, (16, 16, 3))
            pixels[..., label] += 60
            file = b"a\rb.png" if number == 0 else b"%02d.png" % number
            Image.fromarray(pixels.astype(np.uint8)).save(os.path.join(below, file).decode(errors="surrogateescape"))
    small = ["-d", "ImageFolder", "-b", "8", "-j", "0", "--quiet", "--epochs", "1", "--log"]
    network = ["-a", "small_cnn", "--scratch", "--bottleneck-dim", "8", "--image-size", "16", "--resize-size", "16"]
    images, source, run = (str(folder / name) for name in ("images", "source", "run"))
    assert main(["pretrain", images, "-s", ".", *network, *small, source]) == 0
    assert main(["adapt", images, "-t", ".", "--checkpoint", source, "--save-predictions", *small, run]) == 0
    return folder


def rows_of(path: Path) -> list[list[str]]:
    return list(csv.reader(path.read_text(encoding="utf-8").split("\n")[:-1]))


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_predictions(strange: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"out.{ending}"
    words = ["predict", str(strange / "images"), "--checkpoint", str(strange / "run"), "--probabilities"]
    assert main([*words, "--out", str(out)]) == 0
    if ending == "csv":
        header, *rows = rows_of(out)
        assert len(rows) == 48
        assert {row[1] for row in rows} <= set(SHOWN)
        assert sum(r"a\rb.png" in row[0] for row in rows) == 3
        assert header[3:6] == [f"probability_{name}" for name in ("+b", "=cmd|x", r"\udcff\udcfe")]
    elif ending == "parquet":
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(out)
        assert set(table["class"].to_pylist()) <= {"+b", "=cmd|x", r"\udcff\udcfe"}
        assert len(table) == 48
    else:
        with np.load(out) as arrays:
            assert sorted(map(os.path.isfile, arrays["paths"])) == [True] * 48


def test_a_report_and_an_export(strange: Path, tmp_path: Path) -> None:
    assert main(["report", str(strange / "run"), "--out", str(tmp_path / "report")]) == 0
    assert rows_of(tmp_path / "report" / "runs.csv")
    assert main(["export", str(strange / "run"), "--out", str(tmp_path / "model.pt2"), "--format", "torch-export"]) == 0


def test_a_report_of_names_that_are_no_text(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", "ancon", "A-D", source=[], target=["=\udcff"])
    (run / "config.json").write_text((run / "config.json").read_text().replace('"ancon"', '"\\ud800"'))
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 0
    assert r"'=\udcff" in (tmp_path / "report" / "runs.csv").read_text()


def test_labelling(strange: Path, tmp_path: Path) -> None:
    """Questions are written, filled in and read again."""
    run = Path(shutil.copytree(strange / "run", tmp_path / "run"))
    questions = tmp_path / "questions.csv"
    words = ["certify", str(run), "--no-page", "--quiet"]
    assert main([*words, "--questions", str(questions)]) == 0
    header, *rows = rows_of(questions)
    assert len(rows) > 1
    with open(questions, "w", newline="") as file:
        csv.writer(file).writerows([header, *([name, "1"] for name, _ in rows)])
    assert main([*words, "--answers", str(questions)]) == 0
    assert len((run / "answers.jsonl").read_bytes().splitlines()) > 1


def test_the_page() -> None:
    names = ["a", "b\udcff"]
    session = Session(Comparison(np.array([0, 1]), np.array([1, 0]), names, ["=x", "\udcff"]))
    with served(session) as page:
        response, content = page.get("state")
        assert response.status == 200
        assert page.get("answer", method="POST", body="[" * 100_000)[0].status == 400
        assert {option["text"] for option in json.loads(content)["options"]} >= {"=x", r"\udcff"}
