"""What the README tells a newcomer to type is run as it stands, on a few small pictures."""

import csv
import re
import shlex
import sys
from pathlib import Path

import pytest
import timm
import torch

from tests.support.layouts import write_classes
from tests.support.places import ROOT, blocks_of
from tllib_ancon import pretrain
from tllib_ancon.cli.main import main
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.laboratory.demo import DemoConfig, runs_of
from tllib_ancon.laboratory.digits import write_demo_domains

README = (ROOT / "README.md").read_text()
QUICK_FLAGS = {
    "adapt": ["--epochs", "1", "--image-size", "32", "-b", "4", "--workers", "0", "--quiet"],
    "check": ["--image-size", "32", "-b", "4", "--workers", "0"],
    "predict": ["--workers", "0", "--quiet"],
    "evaluate": ["--workers", "0"],
}


def block(language, start):
    """The one block of code that begins so."""
    (code,) = (block for block in blocks_of(README, language) if block.startswith(start))
    return code


@pytest.fixture
def newcomer(tmp_path, monkeypatch):
    """A folder with a checkpoint of timm and class folders, on a machine without TLLib."""
    for toolkit in ("tllib", "dalib"):
        monkeypatch.setitem(sys.modules, toolkit, None)
    write_classes(tmp_path / "photos", ("cat", "dog"), images=10)
    torch.manual_seed(0)
    torch.save(timm.create_model("resnet18", num_classes=2).state_dict(), tmp_path / "model.pth")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_check_adapt_and_predict(newcomer, capsys):
    printed = ""
    for line in block("sh", "tllib-ancon check photos").splitlines():
        program, command, *words = shlex.split(line, comments=True)
        assert program == "tllib-ancon"
        assert main([command, *words, *QUICK_FLAGS[command]]) == 0, capsys.readouterr().err
        printed += capsys.readouterr().out
    assert len(list(csv.DictReader((newcomer / "predictions.csv").open()))) == 20
    assert (newcomer / "look" / "images.png").is_file()
    for line in block("text", "  --batch-norm ").splitlines():
        assert line in printed.splitlines()


def test_the_lines_of_python_adapt_what_the_demo_leaves(newcomer, few_digits, capsys):
    write_demo_domains(Path("ancon-demo/data"))
    source, *_ = runs_of(DemoConfig())
    assert source.name == "source/erm-rendered-seed0"
    assert source.command == "pretrain"
    pretrain(PretrainConfig(**{**source.settings, "epochs": 1, "iters_per_epoch": 2}))
    exec(block("python", "from tllib_ancon import adapt").replace("epochs=6", "epochs=1"))
    shown = [re.sub(r"[0-9.,]+", "N", line) for line in capsys.readouterr().out.splitlines()]
    for line in block("text", "ancon-auto, 6 epochs").splitlines()[1:3]:
        assert re.sub(r"[0-9.,]+", "N", line) in shown
    assert shown[-1].startswith("N images")


def test_the_loop_gives_a_loss_with_a_gradient(capsys):
    code = block("python", "from tllib_ancon import AnchoredConfidence")
    model = torch.nn.Linear(8, 10)
    names = {
        "target_images": range(12),
        "device": "cpu",
        "model": model,
    }
    batches = [torch.arange(4), torch.arange(4, 8)]
    names["loader"] = [(indices, torch.randn(4, 8)) for indices in batches]
    exec(code, names)
    names["loss"].backward()
    assert model.weight.grad.abs().sum() > 0
    shown = block("text", "loss ")
    assert re.sub(r"[0-9.]+", "N", capsys.readouterr().out) == re.sub(r"[0-9.]+", "N", shown)
