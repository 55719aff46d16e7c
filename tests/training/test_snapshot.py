from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tllib_ancon.errors import UserError
from tllib_ancon.training.snapshot import restore_snapshot, take_snapshot


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


def test_a_part_that_is_missing_is_named() -> None:
    snapshot = take_snapshot(parts())
    del snapshot["parts"]["model"]
    with pytest.raises(UserError, match="does not fit its model"):
        restore_snapshot(parts(), snapshot)
