from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tllib_ancon.errors import UserError
from tllib_ancon.training.snapshot import copy_to_cpu, require_numbers, restore_snapshot, take_snapshot


def parts(width: int = 2) -> dict[str, Any]:
    model = nn.Linear(width, 3)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=width, momentum=0.9)}


def test_a_snapshot_puts_parts_and_random_numbers_back() -> None:
    kept, new = parts(), parts()
    snapshot = take_snapshot(kept)
    drawn = torch.rand(3)
    restore_snapshot(new, snapshot)
    assert torch.equal(torch.rand(3), drawn)
    assert torch.equal(new["model"].weight, kept["model"].weight)


@pytest.mark.parametrize(
    ("part", "state"),
    [
        ("model", parts(width=4)["model"].state_dict()),
        ("model", {}),
        ("model", 3),
        ("optimizer", {"state": {}, "param_groups": []}),
        ("optimizer", {}),
        ("optimizer", None),
    ],
)
def test_a_part_that_does_not_fit_is_named(part: str, state: object) -> None:
    snapshot = take_snapshot(parts())
    snapshot["parts"][part] = state
    with pytest.raises(UserError, match=rf"does not fit its {part} \(\w+: .*overwrite"):
        restore_snapshot(parts(), snapshot)


@pytest.mark.parametrize(
    ("generator", "state"),
    [
        ("python", [3, [1, 2], None]),
        ("python", 3),
        ("numpy", ["MT19937", [0] * 624, 10**6, 0, 0.0]),
        ("numpy", ["MT19937", [-1] * 624, 0, 0, 0.0]),
        ("torch", torch.zeros(7, dtype=torch.uint8)),
        ("torch", "state"),
        ("cuda", 3),
    ],
)
def test_a_generator_that_does_not_fit_is_refused(generator: str, state: object) -> None:
    snapshot = take_snapshot(parts())
    snapshot[generator] = state
    with pytest.raises(UserError, match=r"does not fit its random generators \(\w+: .*overwrite"):
        restore_snapshot(parts(), snapshot)


def schedules() -> dict[str, Any]:
    optimizer = parts()["optimizer"]
    return {"optimizer": optimizer, "schedule": torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)}


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("schedule", {"step": 3}),
        ("schedule", {"last_epoch": "two"}),
        ("schedule", {"last_epoch": -3}),
        ("schedule", {"base_lrs": [0.1, 0.1]}),
        ("schedule", {"base_lrs": [float("nan")]}),
        ("optimizer", {"state": {0: {"momentum_buffer": torch.zeros(7)}}}),
        ("optimizer", {"state": {0: {"momentum_buffer": 3}}}),
        ("optimizer", {"state": {"weight": {}}}),
        ("optimizer", {"param_groups": [{"lr": 0.1, "params": [0]}]}),
    ],
)
def test_numbers_and_sizes_that_do_not_fit_are_refused(part: str, change: dict[str, Any]) -> None:
    snapshot = take_snapshot(schedules())
    snapshot["parts"][part] |= change
    with pytest.raises(UserError, match=f"does not fit its {part} "):
        restore_snapshot(schedules(), snapshot)


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ([{"epoch": 0, "infomax": 1.0}, {"epoch": 2, "infomax": 1.0}], "epoch 2 in the place of 1"),
        ([{"epoch": 0, "infomax": 1.0}, {"epoch": 1}], "epoch 1 has no number 'infomax'"),
        ([{"epoch": 0, "infomax": "high"}], "epoch 0 has no number 'infomax'"),
        ([{"epoch": 0, "infomax": 1.0, "accuracy": [3.0]}], "epoch 0 has no number 'accuracy'"),
        ([{"infomax": 1.0}], "KeyError"),
    ],
)
def test_metrics_that_a_run_would_stumble_over_are_refused(metrics: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        require_numbers(metrics, ["infomax"], first=0)


def test_a_part_that_is_missing_is_named() -> None:
    snapshot = take_snapshot(parts())
    del snapshot["parts"]["model"]
    with pytest.raises(UserError, match="does not fit its model"):
        restore_snapshot(parts(), snapshot)


def test_a_copy_is_not_changed_by_what_is_trained_on() -> None:
    trained = parts()
    trained["model"](torch.ones(1, 2)).sum().backward()
    trained["optimizer"].step()
    copied = copy_to_cpu(take_snapshot(trained))
    weight = trained["model"].weight.detach().clone()
    momentum = trained["optimizer"].state[trained["model"].weight]["momentum_buffer"].clone()
    trained["optimizer"].param_groups[0]["lr"] = 7
    trained["optimizer"].step()
    assert not torch.equal(trained["model"].weight, weight)
    new = parts()
    restore_snapshot(new, copied)
    assert torch.equal(new["model"].weight, weight)
    assert torch.equal(new["optimizer"].state[new["model"].weight]["momentum_buffer"], momentum)
    assert new["optimizer"].param_groups[0]["lr"] == 2


def test_a_copy_keeps_ties_versions_and_layouts() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.BatchNorm1d(3))
    model[1].weight = model[0].weight
    state = model.state_dict()
    copied = copy_to_cpu(state)
    assert copied["0.weight"] is copied["1.weight"]
    assert copied["0.bias"] is not copied["1.bias"]
    assert copied._metadata == state._metadata
    last = torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last)
    assert copy_to_cpu([(last, "text", 3)])[0][0].stride() == last.stride()
