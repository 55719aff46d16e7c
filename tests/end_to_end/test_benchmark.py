"""``benchmark`` and ``report`` on generated pictures in the layouts of the paper's datasets."""

from __future__ import annotations

import contextlib
import csv
import errno
import json
import multiprocessing
import os
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests.layouts import write_classes, write_office_home, write_visda
from tests.paper.test_driver import Ended
from tllib_ancon.cli.main import main
from tllib_ancon.paper import driver
from tllib_ancon.training.lock import FolderLock

TINY = [
    *(
        "-a",
        "small_cnn",
        "--scratch",
        "--bottleneck-dim",
        "8",
        "--both-train-resizing",
        "res.",
        "--val-resizing",
        "res.",
    ),
    *("--resize-size", "16", "--both-epochs", "1", "--both-batch-size", "16", "-j", "0"),
]


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands run by ``main`` itself, which is quicker than a process each."""
    made: list[list[str]] = []

    def start(command, **streams):
        made.append(command[4:])
        with contextlib.redirect_stdout(streams["stdout"]), contextlib.redirect_stderr(streams["stderr"]):
            status = main(command[4:])
        return Ended(status)

    monkeypatch.setattr(driver.subprocess, "Popen", start)
    return made


@pytest.fixture(scope="module")
def office_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_office_home(tmp_path_factory.mktemp("officehome"), images=70)


def rows(path: Path) -> dict[tuple[str, str], dict[str, str]]:
    with open(path, newline="") as file:
        return {(row["row"], row["number"]): row for row in csv.DictReader(file)}


def test_officehome(office_home: Path, tmp_path: Path, in_this_process, capsys) -> None:
    out = tmp_path / "runs"
    few = ["--pairs", "Ar-Cl", "Ar-Pr", "--methods", "self-training", "ancon", "--seeds", "0", "--out", str(out)]
    command = ["benchmark", "officehome", str(office_home), *few, *TINY]
    assert main(command) == 0
    assert [words[0] for words in in_this_process] == ["pretrain", *["adapt"] * 4]
    assert "5 of 5 runs are finished" in capsys.readouterr().out
    assert json.loads((out / "benchmark.json").read_text())["overrides"]["adapt"]["epochs"] == 1

    assert main(command) == 0
    assert len(in_this_process) == 5
    capsys.readouterr()

    assert main(["report", str(out), "--out", str(tmp_path / "report")]) == 0
    shown = capsys.readouterr().out
    assert "deviates from the paper: arch: small_cnn, in the paper's plan resnet50" in shown
    assert "not run: methods elr, gce" in shown
    found = rows(tmp_path / "report" / "accuracy.csv")
    result = json.loads((out / "erm/Ar-Cl/ancon-seed0/result.json").read_text())
    assert found["ancon", "measured"]["Ar-Cl"] == f"{result['selected']['accuracy']:.2f}"
    assert found["ancon", "published"]["Ar-Cl"] == "48.06"
    assert found["ancon", "seeds"]["Ar-Cl"] == "1"
    assert ("ancon", "published") in rows(tmp_path / "report" / "ece.csv")
    assert (tmp_path / "report" / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_visda_by_class(tmp_path: Path) -> None:
    root, out = write_visda(tmp_path / "visda", images=36), tmp_path / "runs"
    assert main(["benchmark", "visda", str(root), "--methods", "ancon", "--seeds", "0", "--out", str(out), *TINY]) == 0
    assert main(["report", str(out), "--out", str(tmp_path / "report")]) == 0
    found = rows(tmp_path / "report" / "class_accuracy.csv")
    assert found["ancon", "published"]["truck"] == "16.35"
    assert found["ancon", "measured"]["truck"] != ""


def test_imagenet_c_from_its_own_head(tmp_path: Path) -> None:
    for code in ("frost/1", "frost/5"):
        names = write_classes(tmp_path / "imagenet-c" / code, ["n01440764", "n01443537"], images=10)
    (tmp_path / "subset.txt").write_text("\n".join(names))
    few = ["--pairs", "frost/1", "frost/5", "--methods", "ancon", "--seeds", "0", "--out", str(tmp_path / "runs")]
    tiny = [
        "-a",
        "test_resnet",
        "--scratch",
        "--resize-size",
        "32",
        "--adapt-epochs",
        "1",
        "--adapt-batch-size",
        "4",
        "-j",
        "0",
    ]
    subset = ["--subset", str(tmp_path / "subset.txt")]
    assert main(["benchmark", "imagenet-c", str(tmp_path / "imagenet-c"), *few, *tiny, *subset]) == 0
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 0
    assert rows(tmp_path / "report" / "accuracy-5.csv")["ancon", "published"]["frost"] == "39.02"
    assert (tmp_path / "report" / "severity.png").is_file()


def test_a_plan_of_ones_own_and_its_report(office_home: Path, tmp_path: Path, capsys) -> None:
    own = tmp_path / "mine.toml"
    own.write_text(
        'title = "Mine alone"\ndataset = "OfficeHome"\npairs = ["Ar-Cl"]\nmethods = ["ancon"]\n[source.erm]\n'
    )
    command = ["benchmark", str(own), str(office_home), "--seeds", "0", "--out", str(tmp_path / "runs"), *TINY]
    assert main(command) == 0
    capsys.readouterr()
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("## Mine alone")
    assert "deviates from the paper: arch: small_cnn" in shown


def test_nothing_is_set_beside_runs_on_other_data(office_home: Path, tmp_path: Path, capsys) -> None:
    few = ["--pairs", "Ar-Cl", "--methods", "ancon", "--seeds", "0", "--out", str(tmp_path / "runs")]
    assert main(["benchmark", "officehome", str(office_home), *few, *TINY]) == 0
    capsys.readouterr()
    assert main(["report", str(tmp_path / "runs"), "--paper", "imagenet-c", "--out", str(tmp_path / "report")]) == 0
    shown = capsys.readouterr().out
    assert "these runs are on OfficeHome, the plan is for ImageNetC: nothing is set beside them" in shown
    assert "(paper)" not in shown


def test_a_failed_run_is_listed_and_the_others_are_made(
    office_home: Path, tmp_path: Path, in_this_process, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = driver.subprocess.Popen

    def without_a_start(command, **streams):
        return start([*command, *(["--checkpoint", "none.pth"] if "ancon" in command else [])], **streams)

    monkeypatch.setattr(driver.subprocess, "Popen", without_a_start)
    few = ["--pairs", "Ar-Cl", "--methods", "self-training", "ancon", "--seeds", "0", "--out", str(tmp_path)]
    assert main(["benchmark", "officehome", str(office_home), *few, *TINY]) == 1
    shown = capsys.readouterr()
    assert "2 of 3 runs are finished" in shown.out
    assert "failed: erm/Ar-Cl/ancon-seed0: exit status 2: tllib-ancon: error:" in shown.err
    assert len(json.loads((tmp_path / "benchmark.json").read_text())["failures"]) == 1
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "report")]) == 0
    assert "failed: erm/Ar-Cl/ancon-seed0" in capsys.readouterr().out


def test_dry_run_tells_the_plan_and_its_time(office_home: Path, tmp_path: Path, in_this_process, capsys) -> None:
    assert main(["benchmark", "officehome", str(office_home), "--out", str(tmp_path / "runs"), "--dry-run", *TINY]) == 0
    shown = capsys.readouterr().out
    assert "12 source models and 324 adaptations" in shown
    assert "time     about" in shown
    assert not in_this_process
    assert not (tmp_path / "runs").exists()


def test_print_commands_needs_no_data(in_this_process, capsys) -> None:
    few = ["--pairs", "A-D", "--methods", "ancon", "--seeds", "0"]
    assert main(["benchmark", "office31", "/no data", *few, "--print-commands", "--adapt-epochs", "3"]) == 0
    source, adapted = capsys.readouterr().out.splitlines()
    assert source.startswith("tllib-ancon pretrain '/no data' --data Office31")
    assert "--epochs 100" in source
    assert "--epochs 3" in adapted
    assert not in_this_process


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["office32", "."], "did you mean 'office31'"),
        (["office31", ".", "--pairs", "A-C"], "unknown pair of office31 'A-C'"),
        (["office31", ".", "--methods", "ancno"], "did you mean 'ancon'"),
        (["office31", ".", "--jobs", "0"], "--jobs must be at least 1, got 0"),
        (["mine.toml", "."], "mine.toml cannot be read"),
        (["officehome", "."], "Art, Clipart, Product, Real_World"),
        (["officehome", "/none"], "is not a folder"),
        (["imagenet-c", "."], "does not hold"),
    ],
)
def test_bad_input(arguments: list[str], message: str, in_this_process, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["benchmark", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not in_this_process


def hold(folder: Path, connection: Connection) -> None:
    lock = FolderLock(folder)
    connection.send(None)
    connection.recv()
    lock.release()


def test_another_benchmark_in_the_same_folder_is_refused(office_home: Path, tmp_path: Path, capsys) -> None:
    here, there = multiprocessing.Pipe()
    other = multiprocessing.get_context("fork").Process(target=hold, args=(tmp_path, there))
    other.start()
    here.recv()
    few = ["--pairs", "Ar-Cl", "--methods", "ancon", "--seeds", "0", "--out", str(tmp_path)]
    assert main(["benchmark", "officehome", str(office_home), *few, *TINY]) == 2
    assert f"{tmp_path} is in use: process {other.pid} on " in capsys.readouterr().err
    here.send(None)
    other.join()


def test_an_incomplete_domain(tmp_path: Path, in_this_process, capsys) -> None:
    root = write_office_home(tmp_path, images=20)
    missing = root / "Clipart/class3/0003.jpg"
    missing.unlink()
    assert main(["benchmark", "officehome", str(root), *TINY]) == 2
    assert f"domain Cl is incomplete: 1 of 20 images are missing, {missing} first" in capsys.readouterr().err
    assert not in_this_process


def test_report_refuses_what_is_no_run(tmp_path: Path, capsys) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "no finished adaptation" in capsys.readouterr().err


def test_a_full_disk_keeps_the_record_of_the_runs_before(
    office_home: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    record = tmp_path / "runs" / "benchmark.json"
    record.parent.mkdir()
    record.write_text('{"table": "officehome", "failures": []}')
    few = ["--pairs", "Ar-Cl", "--methods", "ancon", "--seeds", "0", "--out", str(record.parent)]

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tllib_ancon.paper.driver.execute", lambda *_: [])
    monkeypatch.setattr(os, "fsync", full)
    assert main(["benchmark", "officehome", str(office_home), *few, *TINY]) == 2
    assert f"{record} could not be written" in capsys.readouterr().err
    assert record.read_text() == '{"table": "officehome", "failures": []}'


def test_a_report_before_the_last_run_knows_the_plan(office_home: Path, tmp_path: Path, monkeypatch) -> None:
    few = ["--pairs", "Ar-Cl", "--methods", "ancon", "--seeds", "0", "--out", str(tmp_path)]
    seen: list[str] = []

    def cut_off(*_: object) -> list[driver.Failure]:
        seen.append(json.loads((tmp_path / "benchmark.json").read_text())["table"])
        return []

    monkeypatch.setattr("tllib_ancon.paper.driver.execute", cut_off)
    assert main(["benchmark", "officehome", str(office_home), *few, *TINY]) == 0
    assert seen == ["officehome"]
