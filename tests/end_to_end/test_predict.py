"""``predict`` and ``export``: answers and models out of a run directory alone."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.domains_on_disk import CLASSES, small_arguments
from tests.end_to_end.test_bad_input import refused
from tllib_ancon import predict
from tllib_ancon.cli.main import main
from tllib_ancon.config import PredictionsConfig
from tllib_ancon.training import prediction_files
from tllib_ancon.training.prediction_files import write_predictions


@pytest.fixture
def pictures(domains: Path, tmp_path: Path) -> Path:
    """A tree of any depth."""
    return Path(shutil.copytree(domains / "dark", tmp_path / "pictures" / "deep" / "er")).parents[1]


@pytest.fixture
def chunks_of_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction_files, "CHUNK", 10)


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_row_a_picture_and_no_flag_again(source_checkpoint: Path, domains: Path, tmp_path: Path, capsys) -> None:
    run, out, pictures = source_checkpoint.parents[1], tmp_path / "out.csv", domains / "bright"
    assert main(["predict", str(pictures), "--checkpoint", str(run), "--out", str(out), "-j", "0"]) == 0
    found = rows(out)
    assert list(found[0]) == ["path", "class", "confidence", "error"]
    assert len(found) == 60
    assert {row["class"] for row in found} <= set(CLASSES)
    right = [Path(row["path"]).parent.name == row["class"] for row in found]
    assert np.mean(right) > 0.9
    assert "60 pictures; predictions in" in capsys.readouterr().err
    answers = predict(run, pictures, workers=0)
    assert [CLASSES[label] for label in answers.labels] == [row["class"] for row in found]
    np.testing.assert_allclose(answers.probabilities.max(1), [float(row["confidence"]) for row in found], rtol=1e-5)
    assert list(tmp_path.glob(".*")) == []


def test_every_format_says_the_same(source_checkpoint: Path, pictures: Path, tmp_path: Path, chunks_of_ten) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: pip install '.[parquet]'")
    words = ["predict", str(pictures), "--checkpoint", str(source_checkpoint), "--probabilities", "-j", "0", "--quiet"]
    for ending in ("csv", "parquet", "npz"):
        assert main([*words, "--out", str(tmp_path / f"out.{ending}")]) == 0
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
def test_a_picture_that_cannot_be_read_has_a_row(
    source_checkpoint: Path, pictures: Path, tmp_path: Path, chunks_of_ten, workers: str
) -> None:
    whole, out = tmp_path / "whole.csv", tmp_path / "out.csv"
    words = ["predict", str(pictures), "--checkpoint", str(source_checkpoint), "-j", workers, "--quiet"]
    assert main([*words, "--out", str(whole)]) == 0
    broken = sorted(pictures.rglob("*.png"))
    for path in (broken[0], broken[13]):
        path.write_bytes(b"no picture")
    assert main([*words, "--out", str(out)]) == 0
    found = rows(out)
    assert [row["path"] for row in found if row["error"]] == [str(broken[0]), str(broken[13])]
    assert all("cannot be decoded" in row["error"] and not row["class"] for row in found if row["error"])
    readable = [row for row in found if not row["error"]]
    assert readable == [row for row in rows(whole) if row["path"] not in (str(broken[0]), str(broken[13]))]


def test_a_command_that_was_cut_off_goes_on(
    source_checkpoint: Path, pictures: Path, tmp_path: Path, chunks_of_ten, monkeypatch
) -> None:
    whole, out = tmp_path / "whole.csv", tmp_path / "out.csv"
    words = ["predict", str(pictures), "--checkpoint", str(source_checkpoint), "-j", "0", "--quiet", "-b", "7"]
    assert main([*words, "--out", str(whole)]) == 0
    kept: list[int] = []
    keep = prediction_files._Parts.keep

    def cut_off(parts, number, chunk):
        if len(kept) == 2:
            raise KeyboardInterrupt
        kept.append(number)
        keep(parts, number, chunk)

    monkeypatch.setattr(prediction_files._Parts, "keep", cut_off)
    assert main([*words, "--out", str(out)]) != 0
    assert not out.exists()
    kept.clear()
    monkeypatch.setattr(prediction_files._Parts, "keep", lambda *args: (kept.append(args[1]), keep(*args)))
    assert main([*words, "--out", str(out)]) == 0
    assert kept == [2, 3, 4]
    assert out.read_bytes() == whole.read_bytes()
    assert list(tmp_path.glob(".*")) == []


def test_chunks_of_other_settings_are_not_taken(
    source_checkpoint: Path, pictures: Path, tmp_path: Path, chunks_of_ten, monkeypatch
) -> None:
    out = tmp_path / "out.csv"
    given = {"root": str(pictures), "checkpoint": str(source_checkpoint), "workers": 0, "quiet": True}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prediction_files._Parts, "assemble", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            write_predictions(PredictionsConfig(**given, out=str(out)))
    assert len(list((tmp_path / ".out.csv.parts").glob("*.npz"))) == 5
    (sorted(pictures.rglob("*.png"))[0]).unlink()
    assert write_predictions(PredictionsConfig(**given, out=str(out))) == {"rows": 47, "errors": 0}


def test_a_dataset_a_list_and_standard_output(domains: Path, source_checkpoint: Path, tmp_path: Path, capsys) -> None:
    rest = ["--checkpoint", str(source_checkpoint), "-j", "0", "--quiet"]
    assert (
        main(["predict", str(domains), "-d", "ImageList", "-t", "dark", *rest, "--out", str(tmp_path / "a.csv")]) == 0
    )
    assert main(["predict", str(domains / "image_list" / "dark.txt"), *rest, "--out", str(tmp_path / "b.csv")]) == 0
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()
    capsys.readouterr()
    assert main(["predict", str(domains / "image_list" / "dark.txt"), *rest, "--out", "-"]) == 0
    assert list(csv.DictReader(io.StringIO(capsys.readouterr().out))) == rows(tmp_path / "a.csv")


def test_a_checkpoint_without_its_run_needs_its_architecture(
    source_checkpoint: Path, pictures: Path, tmp_path: Path, capsys
) -> None:
    alone = Path(shutil.copy(source_checkpoint, tmp_path / "alone.pth"))
    words = ["predict", str(pictures), "--checkpoint", str(alone), "--out", str(tmp_path / "out.csv"), "-j", "0"]
    settings = ["-a", "small_cnn", "--val-resizing", "res.", "--resize-size", "16"]
    assert main([*words, *settings]) == 0
    assert "lies in no run directory; assumed:" in capsys.readouterr().err
    assert {row["class"] for row in rows(tmp_path / "out.csv")} <= {"0", "1", "2"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"--out": "{tmp}/out.txt"}, "its ending decides the format"),
        ({"--out": "{tmp}/none/out.csv"}, "does not exist"),
        ({"--out": "{tmp}/there.csv"}, "pass --overwrite to replace it"),
        ({"--checkpoint": "{tmp}/none.pth"}, "is not a file"),
        ({"--checkpoint": "{tmp}"}, "holds no checkpoint"),
        ({"root": "{tmp}/none"}, "none"),
        ({"root": "{tmp}/empty"}, "empty"),
        ({"--image-size": "96"}, "contradicts the run"),
        ({"-d": "ImageList"}, "--target is needed"),
    ],
)
def test_what_predict_refuses(
    source_checkpoint: Path, pictures: Path, tmp_path: Path, capsys, changed: dict[str, str], message: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "there.csv").write_text("kept")
    given = {"root": str(pictures), "--checkpoint": str(source_checkpoint), "--out": str(tmp_path / "out.csv")}
    given |= {name: value.format(tmp=tmp_path) for name, value in changed.items()}
    words = ["predict", given.pop("root"), *(word for pair in given.items() for word in pair)]
    assert message in refused(words, capsys)
    assert (tmp_path / "there.csv").read_text() == "kept"
    assert list(tmp_path.glob(".*")) == []


def test_two_processes_write_what_one_writes(
    source_checkpoint: Path, pictures: Path, tmp_path: Path, chunks_of_ten
) -> None:
    words = ["predict", str(pictures), "--checkpoint", str(source_checkpoint), "-j", "0", "--quiet"]
    assert main([*words, "--out", str(tmp_path / "one.csv")]) == 0
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "--"]
    done = subprocess.run(
        [*launch, "tllib_ancon", *words, "--out", str(tmp_path / "two.csv")],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "two.csv").read_text() == (tmp_path / "one.csv").read_text()


def test_weights_come_back_in_the_layout_they_came_in(source_checkpoint: Path, tmp_path: Path, capsys) -> None:
    run, out = str(source_checkpoint.parents[1]), tmp_path / "weights.pth"
    assert main(["export", run, "--format", "state-dict", "--out", str(out)]) == 0
    original, written = (torch.load(path, weights_only=True) for path in (source_checkpoint, out))
    assert original.keys() == written.keys()
    assert all(torch.equal(original[name], written[name]) for name in original)
    assert "pass --overwrite" in refused(["export", run, "--format", "state-dict", "--out", str(out)], capsys)
    assert "did you mean 'onnx'" in refused(["export", run, "--format", "onxx", "--out", str(out)], capsys)


def test_an_exported_network_gives_the_same_probabilities(
    source_checkpoint: Path, domains: Path, tmp_path: Path
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnx]'")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: pip install '.[onnx]'")
    run, out = source_checkpoint.parents[1], tmp_path / "model.onnx"
    assert main(["export", str(run), "--out", str(out)]) == 0
    session = onnxruntime.InferenceSession(str(out))
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["classes"]) == list(CLASSES)
    side, mean = json.loads(metadata["image_size"]), json.loads(metadata["mean"])
    assert (side, mean) == (16, [0.5] * 3)


def test_the_readme_of_a_run_is_enough_for_evaluate(domains: Path, source_checkpoint: Path, capsys) -> None:
    words = ["evaluate", str(domains), "-d", "ImageList", "-t", "bright", "--checkpoint", str(source_checkpoint)]
    assert main([*words, "-j", "0"]) == 0
    with_nothing = capsys.readouterr().out
    arguments = [word for word in small_arguments(domains) if word not in ("-s", "bright", "--quiet")]
    assert main(["evaluate", *arguments, "-t", "bright", "--checkpoint", str(source_checkpoint)]) == 0
    assert capsys.readouterr().out == with_nothing
