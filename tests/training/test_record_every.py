"""The record of some epochs alone: which are scored, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import tllib_ancon
from tests.end_to_end.killable import differences
from tllib_ancon.errors import UserError
from tllib_ancon.report.reselection import read_metrics, table
from tllib_ancon.training.adaptation import Adaptation
from tllib_ancon.training.run_directory import RunDirectory

EPOCHS, IMAGES = 7, 24
WITH_LABELS = {"accuracy", "mean_class_accuracy", "ece", "per_class_accuracy"}


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.randn(IMAGES, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The epochs after which the whole target is scored."""
    predict, epochs = Adaptation._predict, []

    def counted(self: Adaptation, loader: Any, epoch: int) -> Any:
        if loader is self.target_loader:
            epochs.append(epoch)
        return predict(self, loader, epoch)

    monkeypatch.setattr(Adaptation, "_predict", counted)
    return epochs


def adapt(images: torch.Tensor, record_every: int, labels: bool = True, **settings: Any) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    quick = {"epochs": EPOCHS, "batch_size": 4, "workers": 0, "quiet": True, "record_every": record_every}
    true = [number % 3 for number in range(IMAGES)] if labels else None
    return tllib_ancon.adapt(model, TensorDataset(images), labels=true, **{**quick, **settings})


def recorded(metrics: list[Mapping[str, Any]]) -> list[int]:
    for line in metrics:
        assert line.keys() >= WITH_LABELS or not WITH_LABELS & line.keys()
    return [line["epoch"] for line in metrics if "accuracy" in line]


def without(metrics: list[Mapping[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in line.items() if name not in names} for line in metrics]


@pytest.mark.parametrize(("record_every", "due"), [(1, range(8)), (3, (0, 3, 6, 7)), (7, (0, 7)), (100, (0, 7))])
def test_start_every_nth_last_and_selected_epoch(images, passes, record_every: int, due) -> None:
    usual, rare = adapt(images, 1, lr=0.5), adapt(images, record_every, lr=0.5)
    selected = usual.selected_epoch
    assert recorded(rare.metrics) == sorted({*due, selected})
    rest = (*WITH_LABELS, "images_per_second")
    assert without(rare.metrics, *rest) == without(usual.metrics, *rest)
    for rarely, always in zip(rare.metrics, usual.metrics, strict=True):
        assert all(rarely[name] == always[name] for name in WITH_LABELS & rarely.keys())
    assert differences(dict(usual.model.state_dict()), dict(rare.model.state_dict())) == []
    assert rare.summary["selected"]["accuracy"] == usual.metrics[selected]["accuracy"]
    extra = [] if selected in due else [EPOCHS]
    assert passes == [*range(EPOCHS + 1), *due, *extra]


def test_an_epoch_between_is_selected_in_these_tests(images) -> None:
    assert adapt(images, 1, lr=0.5).selected_epoch not in (0, 3, 6, 7)


def test_without_labels_no_epoch_needs_the_whole_target(images, passes) -> None:
    adapt(images, 3, labels=False)
    assert passes == []


def test_the_selected_epoch_is_scored_alone_and_the_last_model_is_kept(images, tmp_path: Path) -> None:
    for name, record_every in (("usual", 1), ("rare", 100)):
        adapt(images, record_every, lr=0.5, log=str(tmp_path / name))
    usual, rare = (RunDirectory(tmp_path / name) for name in ("usual", "rare"))
    for checkpoint in ("latest.pth", "best.pth"):
        assert differences(usual.load(checkpoint), rare.load(checkpoint)) == []
    assert recorded(rare.metrics()) == [0, rare.result()["selected_epoch"], EPOCHS]


def test_a_run_that_is_cut_off_ends_as_one_that_is_not(images, tmp_path: Path, monkeypatch) -> None:
    train = Adaptation._train_epoch
    adapt(images, 3, lr=0.5, log=str(tmp_path / "whole"))
    for cut in (2, EPOCHS):
        with monkeypatch.context() as patch:
            patch.setattr(Adaptation, "_train_epoch", lambda self, epoch, cut=cut: _until(train, self, epoch, cut))
            with pytest.raises(KeyboardInterrupt):
                adapt(images, 3, lr=0.5, log=str(tmp_path / "cut"))
    adapt(images, 3, lr=0.5, log=str(tmp_path / "cut"))
    whole, cut = (RunDirectory(tmp_path / name).metrics() for name in ("whole", "cut"))
    assert without(whole, "images_per_second") == without(cut, "images_per_second")


def _until(train: Any, adaptation: Adaptation, epoch: int, cut: int) -> Any:
    if epoch == cut:
        raise KeyboardInterrupt
    return train(adaptation, epoch)


def test_what_is_predicted_for_a_file_is_recorded_too(images, passes, tmp_path: Path) -> None:
    result = adapt(images, 3, save_logits=True, log=str(tmp_path / "logits"))
    assert recorded(result.metrics) == passes == list(range(EPOCHS + 1))
    passes.clear()
    result = adapt(images, 3, save_predictions=True, lr=0.5, log=str(tmp_path / "predictions"))
    assert recorded(result.metrics) == passes
    assert {0, 3, 6, 7, result.selected_epoch} <= set(passes)


def test_another_choice_of_the_epoch_shows_what_is_on_record(images, tmp_path: Path) -> None:
    adapt(images, 100, lr=0.5, log=str(tmp_path / "run"))
    metrics = read_metrics(RunDirectory(tmp_path / "run"))
    shown = {line.split()[0]: line.split() for line in table(metrics).splitlines() if line}
    selected = metrics[2]
    assert shown["infomax"][1:] == ["2", *(f"{selected[name]:.{digits}f}" for name, digits in SHOWN.items())]
    assert shown["snd"][1:] == ["1", f"{metrics[1]['snd']:.4f}"]
    assert "is not on record" in table(metrics)
    assert "maximum performance change" not in table(metrics)


SHOWN = {"infomax": 4, "accuracy": 2, "ece": 4}
"""Column -> its digits."""


def test_other_numbers_are_refused(images) -> None:
    with pytest.raises(UserError, match="`record_every` must be"):
        adapt(images, 0)
