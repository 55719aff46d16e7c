"""Names of files, classes and domains that a terminal, a page or a spreadsheet would obey: every command shows text."""

import csv
import json
import os
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import ModelCard
from PIL import Image

from tests.certify.serving import served
from tests.conftest import REFUSED
from tests.laboratory.fabricated import write_run
from tllib_ancon.certificate.session import Comparison, Session
from tllib_ancon.cli.main import main
from tllib_ancon.runtime.text import LONGEST

NAMES = REFUSED["hostile names"]
DOMAIN = "".join(NAMES[number] for number in (0, 3, 5, 8, 18, 24, 25))


def assert_safe(text: str) -> None:
    """No character but a newline that acts and shows nothing, no forged line."""
    acting = [one for one in text if one != "\n" and unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    assert acting == []
    assert not re.search(r"^FORGED", text, re.MULTILINE)


@pytest.fixture(scope="module", params=["ImageFolder", "ImageList"])
def world(request, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], list[str]]:
    """Images of classes of these names, one of which is damaged in each class, with a finished run on them; and the
    flags of the data and of the run."""
    folder, lists = tmp_path_factory.mktemp("hostile"), request.param == "ImageList"
    classes = [name for name in NAMES if not (lists and set(name) & set("\n\r\udcff"))]
    domain = DOMAIN.replace("\n", "").replace("\udcff", "") if lists else DOMAIN
    generator, lines = np.random.default_rng(0), []
    for label, name in enumerate(classes):
        below = folder / "data" / domain / (str(label) if lists else name)
        below.mkdir(parents=True)
        for number in range(3):
            path = below / f"{number}{name}.png"
            if number < 2:
                Image.fromarray(generator.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(path)
            else:
                path.write_bytes(b"damaged")
            lines.append(f"{path.relative_to(folder / 'data')} {label}\n")
    if lists:
        (folder / "data/image_list").mkdir()
        (folder / "data/image_list/classes.txt").write_text("\n".join(classes) + "\n", newline="\n")
        (folder / "data/image_list" / f"{domain}.txt").write_text("".join(lines), newline="\n")
    data = [str(folder / "data"), "-d", request.param, "-j", "0"]
    network = ["-a", "small_cnn", "--scratch", "--bottleneck-dim", "8", "--image-size", "16", "--resize-size", "16"]
    few = ["--epochs", "1", "--skip-corrupt", "--log"]
    assert main(["pretrain", *data, "-s", domain, "-b", "8", "--quiet", *network, *few, str(folder / "source")]) == 0
    more = ["-b", "8", "--save-predictions", *few, str(folder / "run")]
    assert main(["adapt", *data, "-t", domain, *start(folder), *more]) == 0
    return folder, data, ["-t", domain]


def start(folder: Path) -> list[str]:
    return ["--checkpoint", str(folder / "source")]


COMMANDS = {
    "adapt": "--epochs 1 --skip-corrupt --log {out}/run",
    "evaluate": "--skip-corrupt --per-class-eval --json {out}/scores.json",
    "predict": "--probabilities --out {out}/out.csv",
    "predict, as text": "--probabilities --out -",
    "predict, as arrays": "--probabilities --out {out}/out.npz",
    "predict, as a table": "--probabilities --out {out}/out.parquet",
    "check": "--json {out}/check.json",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_on_data(world, tmp_path: Path, capsys, command: str) -> None:
    folder, data, target = world
    words = COMMANDS[command].format(out=tmp_path).split()
    words += [] if command == "check" else ["-b", "8", *start(folder)]
    status = main([command.partition(",")[0], *data, *target, *words])
    assert status == (1 if command == "check" else 0)
    shown = "".join(capsys.readouterr())
    assert_safe(shown)
    if command in ("adapt", "evaluate"):
        assert "are left out" in shown
    check_files(tmp_path)


def test_the_commands_on_a_run(world, tmp_path: Path, capsys) -> None:
    folder, data, target = world
    opening = [*data, *target, "--skip-corrupt"]
    questions = ["--questions", str(tmp_path / "assess.csv"), "--json", str(tmp_path / "assess.json")]
    assert main(["assess", str(folder / "run"), *opening, *questions]) == 0
    asked = tmp_path / "certify.csv"
    certify = ["certify", str(folder / "run"), "--no-page"]
    assert main([*certify, "--questions", str(asked)]) == 0
    assert main(["report", str(folder / "run"), "--out", str(tmp_path / "report")]) == 0
    assert main(["export", str(folder / "run"), "--out", str(tmp_path / "model.pth"), "--format", "state-dict"]) == 0
    assert_safe("".join(capsys.readouterr()))
    check_files(tmp_path)
    check_files(folder / "run")
    card = ModelCard.load(folder / "run" / "README.md")
    assert "&lt;img src=x" in card.data.model_name
    assert "&lt;img src=x" in card.text
    with open(asked, newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert len(rows) > 1
    with open(asked, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *([name, "1"] for name, _ in rows)])
    assert main([*certify, "--answers", str(asked)]) == 0
    assert len((folder / "run" / "answers.jsonl").read_bytes().splitlines()) > 1


def check_files(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.suffix in (".md", ".csv", ".html", ".json", ".jsonl"):
            text = path.read_bytes().decode()
            assert_safe(text)
            if path.suffix in (".md", ".html"):
                assert "<img src=x" not in text
                assert "<script" not in text
                assert path.suffix == ".html" or "![x](" not in text
        if path.suffix == ".csv":
            cells = [cell for row in csv.reader(text.splitlines()) for cell in row]
            assert [cell for cell in cells if re.match(r"[=+@]|-\D", cell)] == []


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_name_in_an_error(name: str, tmp_path: Path, capsys) -> None:
    (tmp_path / "data/dark/red").mkdir(parents=True)
    Image.new("RGB", (16, 16)).save(tmp_path / "data/dark/red/1.png")
    data = [str(tmp_path / "data"), "-d", "ImageFolder", "-t"]
    for words in ([*data, name], [*data, "dark", "--config", name], [*data, "dark", "--log", f"{tmp_path}/{name}"]):
        assert main(["adapt", *words, "--checkpoint", name]) == 2
        shown = capsys.readouterr().err
        assert shown.count("\n") == 1
        assert_safe(shown)


def test_names_in_a_report(tmp_path: Path, capsys) -> None:
    for number, name in enumerate(NAMES):
        run = write_run(tmp_path / "runs" / str(number), "ancon", target=[name])
        config = json.loads((run / "config.json").read_text())
        own = {"data": "".join(NAMES), "versions": {"torch": name, "device": name}}
        (run / "config.json").write_text(json.dumps({**config, **own}))
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 0
    assert_safe("".join(capsys.readouterr()))
    check_files(tmp_path / "report")


@pytest.mark.parametrize("flag", ["-t", "--checkpoint", "--log", "-a", "--seed", "--no-such-flag"])
def test_a_long_value_makes_no_long_line(flag: str, tmp_path: Path, capsys) -> None:
    os.mkdir(tmp_path / "data")
    assert main(["adapt", str(tmp_path / "data"), "-d", "ImageFolder", "-t", "dark", flag, "x" * 300_000]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert len(line) < LONGEST + 100
    assert line.startswith("tllib-ancon: error: ")


def test_the_page() -> None:
    comparison = Comparison(np.array([0, 1]), np.array([1, 0]), ["a", "b\udcff"], ["=x", "\udcff"])
    with served(Session(comparison)) as page:
        assert {option["text"] for option in json.loads(page.get("state")[1])["options"]} >= {"=x", r"\udcff"}
        assert page.get("answer", method="POST", body="[" * 100_000)[0].status == 400
