"""What the README tells a newcomer to type is run as it stands, on a few small pictures."""

import csv
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import timm
import torch

from tests.layouts import write_classes
from tllib_ancon.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
QUICK_FLAGS = {
    "adapt": ["--epochs", "1", "--image-size", "32", "--resize-size", "36", "-b", "4", "--workers", "0", "--quiet"],
    "predict": ["--workers", "0", "--quiet"],
    "evaluate": ["--workers", "0"],
}


def blocks(title: str, language: str) -> list[str]:
    section = re.split(r"^## ", README, flags=re.MULTILINE)
    return re.findall(rf"```{language}\n(.*?)```", next(part for part in section if part.startswith(title)), re.DOTALL)


@pytest.fixture
def newcomer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a checkpoint of timm and class folders, on a machine without TLLib."""
    for toolkit in ("tllib", "dalib"):
        monkeypatch.setitem(sys.modules, toolkit, None)
    write_classes(tmp_path / "pictures" / "target", ("cat", "dog"), images=10)
    torch.manual_seed(0)
    torch.save(timm.create_model("resnet18", num_classes=2).state_dict(), tmp_path / "model.pth")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_adapt_predict_and_evaluate(newcomer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (script,) = blocks("A model and pictures", "sh")
    for line in script.splitlines():
        program, command, *words = shlex.split(line, comments=True)
        assert program == "tllib-ancon"
        assert main([command, *words, *QUICK_FLAGS[command]]) == 0, capsys.readouterr().err
    rows = list(csv.DictReader((newcomer / "predictions.csv").open()))
    assert len(rows) == 20
    assert "accuracy" in capsys.readouterr().out


def test_the_six_lines_of_python_adapt_and_predict(newcomer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("A model and pictures", "python")
    assert len([line for line in code.splitlines() if line]) == 6
    assert "epochs=10" in code
    exec(code.replace("epochs=10", "epochs=1, workers=0, batch_size=4, image_size=32"), {})
    printed = capsys.readouterr().out
    assert len(re.findall(r"\b[01]\b", printed.rpartition("[")[2])) == 20
    assert (newcomer / "runs" / "python" / "result.json").is_file()


def test_the_loop_gives_a_loss_with_a_gradient() -> None:
    (code,) = blocks("A training loop of your own", "python")
    model = torch.nn.Linear(8, 65)
    names: dict[str, Any] = {"target_images": range(12), "device": "cpu", "model": model}
    names["loader"] = [(torch.arange(4), torch.randn(4, 8)), (torch.arange(4, 8), torch.randn(4, 8))]
    exec(code, names)
    names["loss"].backward()
    assert model.weight.grad is not None
    assert model.weight.grad.abs().sum() > 0


def test_its_links_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)#]+)", README)
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []
