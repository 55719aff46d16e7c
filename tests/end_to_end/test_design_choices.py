"""Each design choice of the paper's Section 5 is reached by its flag: it is recorded, and it changes the model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.domains_on_disk import small_arguments
from tllib_ancon.cli.main import main

CHOICES = [
    "--weighting entropy",
    "--weighting max-probability",
    "--weighting quantile",
    "--weighting quantile --quantile 0.5",
    "--weighting fixed",
    "--weighting fixed --fixed-threshold 0.95",
    "--weighting uniform",
    "--prediction soft",
    "--prediction soft --temperature 0.5",
    "--prediction soft --temperature 1.5",
    "--confidence mc-dropout",
    "--confidence mc-dropout --dropout-probability 0.2",
    "--confidence mc-dropout --dropout-passes 2",
    "--confidence belief-matching",
    "--confidence belief-matching --belief-coefficient 0.1",
    "--smoothing 0.7",
    "--method ancon-auto",
    "--method ancon-auto --class-prior uniform",
    "--method ancon-auto --prior-shrinkage 0.1",
    "--beta 0.1",
    "--schedule full",
    "--schedule half",
    "--convention paper",
    "--normalize",
]


def adapt(domains: Path, checkpoint: Path, log: Path, *more: str) -> dict[str, torch.Tensor]:
    start = ["-t", "dark", "--checkpoint", str(checkpoint), "--epochs", "4", "--lr", "0.1", "--log", str(log)]
    assert main(["adapt", *small_arguments(domains), *start, *more]) == 0
    return torch.load(log / "checkpoints" / "latest.pth", weights_only=True)


@pytest.fixture(scope="module")
def hard_start(domains: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source model of one epoch, which is not sure of anything yet."""
    log = tmp_path_factory.mktemp("hard") / "run"
    assert main(["pretrain", *small_arguments(domains), "--epochs", "1", "--log", str(log)]) == 0
    return log / "checkpoints" / "best.pth"


@pytest.fixture(scope="module")
def models(
    domains: Path, hard_start: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, torch.Tensor]]:
    folder = tmp_path_factory.mktemp("choices")
    runs = {choice: folder / str(number) for number, choice in enumerate(["", *CHOICES])}
    models = {choice: adapt(domains, hard_start, log, *choice.split()) for choice, log in runs.items()}
    for choice, log in runs.items():
        recorded = json.loads((log / "config.json").read_text())
        words = choice.split()
        for flag, value in zip(words[::2], words[1::2], strict=False):
            assert str(recorded[flag.strip("-").replace("-", "_")]) == value
    return models


def test_every_choice_makes_another_model(models: dict[str, dict[str, torch.Tensor]]) -> None:
    bottlenecks = {choice: model["bottleneck.0.weight"] for choice, model in models.items()}
    names = list(bottlenecks)
    same = [
        (one, other)
        for number, one in enumerate(names)
        for other in names[:number]
        if torch.equal(bottlenecks[one], bottlenecks[other])
    ]
    assert not same


def test_mc_dropout_repeats_with_the_seed(domains: Path, hard_start: Path, models: dict, tmp_path: Path) -> None:
    again = adapt(domains, hard_start, tmp_path / "run", "--confidence", "mc-dropout")
    assert all(torch.equal(again[name], tensor) for name, tensor in models["--confidence mc-dropout"].items())
