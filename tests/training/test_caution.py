"""Weights near the start: the pull, the mean of the last epochs, the warm-up, and batch-norm by other statistics."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import tllib_ancon
from tllib_ancon.config import AdaptConfig
from tllib_ancon.errors import UserError
from tllib_ancon.training.adaptation import Adaptation
from tllib_ancon.training.caution import LastEpochs, Pull
from tllib_ancon.training.optimization import create_sgd, relative_decay

EPOCHS, IMAGES = 4, 24


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).eval()


def adapt(model: nn.Module, **settings: Any) -> Any:
    images = torch.randn(IMAGES, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    quick = {"epochs": EPOCHS, "batch_size": 4, "workers": 0, "quiet": True, "seed": 0}
    true = [number % 3 for number in range(IMAGES)]
    return tllib_ancon.adapt(model, TensorDataset(images), labels=true, **{**quick, **settings})


def numbers(metrics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in line.items() if name != "images_per_second"} for line in metrics]


def distance(one: nn.Module, other: nn.Module) -> float:
    return sum(
        float((a - b).detach().square().sum()) for a, b in zip(one.parameters(), other.parameters(), strict=True)
    )


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_the_pull_is_its_equation(share: float) -> None:
    parameter, still = nn.Parameter(torch.tensor([1.0, 2.0])), nn.Parameter(torch.zeros(1), requires_grad=False)
    pull = Pull([parameter, still], share)
    with torch.no_grad():
        parameter.copy_(torch.tensor([5.0, -2.0]))
    pull()
    expected = (1 - share) * torch.tensor([5.0, -2.0]) + share * torch.tensor([1.0, 2.0])
    torch.testing.assert_close(parameter.detach(), expected)


def test_the_mean_is_that_of_the_last_epochs() -> None:
    model = nn.Linear(2, 1)
    last, kept = LastEpochs(model, epochs=5, count=3), []
    for epoch in range(1, 6):
        nn.init.normal_(model.weight)
        last.add(epoch)
        kept.append(model.weight.detach().clone())
    last.take()
    torch.testing.assert_close(model.weight.detach(), torch.stack(kept[2:]).mean(0))


def test_a_warm_up_rises_to_the_decay() -> None:
    optimizer = create_sgd([{"params": [nn.Parameter(torch.zeros(1))], "lr": 1.0}], 0.9, 0)
    schedule = relative_decay(optimizer, 10, 0.75, 20, warmup_steps=4)
    rates = []
    for _ in range(20):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    decay = [(1 + 10 * step / 20) ** -0.75 for step in range(20)]
    assert rates == pytest.approx([min(1, (step + 1) / 5) * decay[step] for step in range(20)])


def test_a_pull_keeps_the_weights_nearer_to_the_start() -> None:
    model = network()
    far, near = (adapt(model, pull=pull, criterion="last").model for pull in (0.0, 0.5))
    assert 0 < distance(model, near) < distance(model, far) / 2


def test_the_mean_is_one_more_epoch_that_may_be_selected() -> None:
    plain = adapt(network(), criterion="last")
    result = adapt(network(), criterion="last", average_last=2)
    assert [line["epoch"] for line in result.metrics] == [*range(EPOCHS + 2)]
    assert result.selected_epoch == EPOCHS + 1
    assert result.metrics[-1]["averaged"] == 2
    assert numbers(result.metrics[: EPOCHS + 1]) == numbers(plain.metrics)
    assert distance(plain.model, result.model) > 0


@pytest.mark.parametrize("settings", [{}, {"batch_norm": "mixed"}, {"pull": 0.01}, {"batch_norm": "source"}])
def test_a_run_that_was_cut_off_ends_as_one_that_was_not(tmp_path: Path, settings: dict[str, Any]) -> None:
    class Cut(Exception):
        pass

    settings = {**settings, "average_last": 2, "criterion": "last", "warmup_steps": 3}
    whole = adapt(network(), **settings, log=str(tmp_path / "whole"))
    finish = Adaptation._finish_epoch
    for epoch in (3, 4):

        def stop(self: Adaptation, metrics: dict[str, Any], at: int = epoch) -> dict[str, Any]:
            if metrics["epoch"] > at:
                raise Cut
            return finish(self, metrics)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Adaptation, "_finish_epoch", stop)
            with pytest.raises(Cut):
                adapt(network(), **settings, log=str(tmp_path / f"cut{epoch}"))
        again = adapt(network(), **settings, log=str(tmp_path / f"cut{epoch}"))
        assert numbers(again.metrics) == numbers(whole.metrics)
        assert all(
            torch.equal(a, b)
            for a, b in zip(again.model.state_dict().values(), whole.model.state_dict().values(), strict=True)
        )


def test_statistics_of_the_start_stay_and_mixed_ones_lie_between() -> None:
    start = network()
    models = {
        name: adapt(start, batch_norm=name, lr=1e-8, criterion="last").model for name in ("source", "mixed", "target")
    }
    mean = {name: model[2].running_mean for name, model in models.items()}
    assert torch.equal(mean["source"], start[2].running_mean)
    moved = {name: float((value - start[2].running_mean).norm()) for name, value in mean.items()}
    assert 0 < moved["mixed"] < moved["target"]
    assert all("forward" not in vars(module) for module in models["mixed"].modules())
    copy.deepcopy(models["mixed"])


def test_defaults_and_what_is_refused() -> None:
    assert AdaptConfig().lr == 0.01
    assert AdaptConfig(batch_norm="source").lr == 0.001
    assert AdaptConfig(batch_norm="source", lr=0.02).lr == 0.02
    with pytest.raises(UserError, match="`average_last` 5 is more than `epochs` 4"):
        AdaptConfig(epochs=4, average_last=5)
    with pytest.raises(UserError, match="`batch_norm_prior` is for `batch_norm=mixed`"):
        AdaptConfig(batch_norm_prior=8)
    assert AdaptConfig(batch_norm="mixed", batch_norm_prior=8).batch_norm_prior == 8
    with pytest.raises(UserError, match="sync_batch_norm"):
        AdaptConfig(batch_norm="mixed", sync_batch_norm=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.Linear(6, 3))
    with pytest.raises(UserError, match="no batch-norm"):
        adapt(model, batch_norm="mixed")
    adapt(model, average_last=1, epochs=1)
    with pytest.raises(UserError, match="no parameter to train with `adapted=norm-affine`"):
        adapt(model, adapted="norm-affine")
    with pytest.raises(UserError, match="no parameter to train with `adapted=all-but-head`"):
        adapt(nn.Sequential(nn.Flatten(), nn.Linear(48, 3)))


@pytest.mark.parametrize(
    "settings", [{"pull": 0.1}, {"warmup_steps": 2}, {"average_last": 1}, {"batch_norm": "source"}], ids=str
)
def test_what_is_of_training_is_refused_where_nothing_is_trained(settings: dict[str, Any]) -> None:
    (name, value), *_ = settings.items()
    with pytest.raises(UserError, match=f"`{name}={value}` has no effect with `method=adabn`, which trains nothing"):
        adapt(network(), method="adabn", epochs=1, **settings)
    adapt(network(), method="adabn", epochs=1, batch_norm="mixed")
