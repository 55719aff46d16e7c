"""Every command shows hostile names of images, classes and domains as text, on the terminal and in its files."""

import csv
import re

import numpy as np
import pytest
from PIL import Image

from tests.support.hostile import HOSTILE_NAMES, assert_safe
from tests.support.json_files import read_json
from tllib_ancon.cli.main import main

DOMAIN = "".join(HOSTILE_NAMES[number] for number in (0, 3, 5, 8, 18, 24, 25))
CLASSES = [*HOSTILE_NAMES[24:], *("".join(HOSTILE_NAMES[first:24:4]) for first in range(4))]
"""Names that act at their beginning, and the others in four."""
NETWORK = ["-a", "small_cnn", "--scratch", "--bottleneck-dim", "8", "--image-size", "16"]


def write_classes(folder):
    """Two images of each hostile class, and a damaged one."""
    generator = np.random.default_rng(0)
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        for number in range(2):
            pixels = generator.integers(0, 255, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}{name}.png")
        (folder / name / f"damaged{name}.png").write_bytes(b"no image")


def check_files(folder):
    for path in folder.rglob("*"):
        if path.suffix not in (".md", ".csv", ".html", ".json", ".jsonl"):
            continue
        text = path.read_bytes().decode()
        assert_safe(text)
        if path.suffix in (".md", ".html"):
            assert "<img src=x" not in text
            assert "<script" not in text
        if path.suffix == ".md":
            assert "![x](" not in text
        if path.suffix == ".csv":
            for row in csv.reader(text.splitlines()):
                assert [cell for cell in row if re.match(r"[=+@]|-\D", cell)] == []


@pytest.fixture
def shown(capsys):
    """What a command shows, which ends with this status."""

    def shown(*words, status=0):
        capsys.readouterr()
        assert main([str(word) for word in words]) == status
        text = "".join(capsys.readouterr())
        assert_safe(text)
        return text

    return shown


def test_every_command_shows_text(shown, tmp_path):
    write_classes(tmp_path / "data" / DOMAIN)
    data = [tmp_path / "data", "-d", "ImageFolder", "-j", "0"]
    target = [*data, "-t", DOMAIN]
    source = ["--checkpoint", tmp_path / "source"]
    run = tmp_path / "run"
    few = ["--epochs", "1", "-b", "8", "--skip-corrupt", "--log"]
    shown("pretrain", *data, "-s", DOMAIN, *NETWORK, *few, tmp_path / "source")
    assert "are left out" in shown("adapt", *target, *source, *few, run)
    scores = ["--json", tmp_path / "scores.json"]
    assert "are left out" in shown("evaluate", *target, *source, "--skip-corrupt", *scores)
    for out in ("-", tmp_path / "out.csv", tmp_path / "out.npz"):
        shown("predict", *target, *source, "--probabilities", "--out", out)
    shown("check", *target, *source, "--skip-corrupt", "--json", tmp_path / "check.json")
    shown("report", run, "--out", tmp_path / "report")
    answered = tmp_path / "certify.csv"
    shown("certify", run, "--no-page", "--questions", answered)
    with open(answered, newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert len(rows) > 1
    check_files(tmp_path)
    with open(answered, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([header, *([name, "1"] for name, _ in rows)])
    shown("certify", run, "--no-page", "--answers", answered)
    assert read_json(run / "answers.json")["answers"] != []


@pytest.mark.parametrize("flag", ["-t", "--checkpoint", "--log", "--config", "-a", "--seed", "--no-such-flag"])
def test_a_hostile_or_long_value_is_one_line_of_an_error(flag, tmp_path, capsys):
    (tmp_path / "data").mkdir()
    for value in ("".join(HOSTILE_NAMES), "x" * 300_000):
        assert main(["adapt", str(tmp_path / "data"), "-d", "ImageFolder", "-t", "dark", flag, value]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert len(error) < 3200
        assert error.startswith("tllib-ancon: error: ")
        assert_safe(error)
