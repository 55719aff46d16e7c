"""What a run continues from, and the seal that tells damage."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from tests.training.small import adapt
from tllib_ancon.errors import UserError
from tllib_ancon.training.checkpointing import (
    SEAL,
    copy_to_cpu,
    read_sealed,
    restore_snapshot,
    take_snapshot,
    write_sealed,
)
from tllib_ancon.training.run import RunDirectory


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
        ("optimizer", {"state": {}, "param_groups": []}),
        ("optimizer", None),
        ("random generators", None),
    ],
)
def test_a_part_that_does_not_fit_is_named(part: str, state: object) -> None:
    snapshot = take_snapshot(parts())
    if part == "random generators":
        del snapshot["numpy"]
    snapshot["parts"][part] = state
    with pytest.raises(UserError, match=rf"cannot be read as its {part} \(.*overwrite"):
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


WEIGHTS = {"weight": torch.zeros(3)}
STATE_OF_A_RUN = {"snapshot": {"parts": {"model": WEIGHTS}}, "metrics": [{"epoch": 0}], "selected": False, "best": None}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """``state.pth`` of a run that was cut off after its first epoch."""
    path = tmp_path / "run" / "checkpoints" / "state.pth"
    path.parent.mkdir(parents=True)
    write_sealed(path, STATE_OF_A_RUN)
    return path


def resume(state: Path) -> Any:
    return RunDirectory(state.parent.parent).resume()


def test_what_is_sealed_is_read(state: Path) -> None:
    snapshot, metrics = resume(state)
    assert torch.equal(snapshot["parts"]["model"]["weight"], WEIGHTS["weight"])
    assert metrics == [{"epoch": 0}]
    assert torch.load(state, weights_only=True)["metrics"] == metrics


class Bomb:
    def __init__(self, victim: Path):
        self.victim = victim

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.victim,)


@pytest.mark.parametrize("sealed", [True, False])
def test_a_state_that_would_run_code_is_refused_and_does_not(tmp_path: Path, state: Path, sealed: bool) -> None:
    bomb = Bomb(tmp_path / "victim")
    if sealed:
        write_sealed(state, {**STATE_OF_A_RUN, "snapshot": bomb})
    else:
        state.write_bytes(pickle.dumps(bomb))
    with pytest.raises(UserError, match="cannot be read as the state of a run" if sealed else "damaged"):
        resume(state)
    assert not bomb.victim.exists()


@pytest.mark.parametrize(
    "foreign",
    [
        [],
        {"a": 1},
        *({name: value for name, value in STATE_OF_A_RUN.items() if name != missing} for missing in STATE_OF_A_RUN),
        {**STATE_OF_A_RUN, "snapshot": {"parts": [3]}},
    ],
)
def test_other_entries_under_a_right_checksum_are_one_message(state: Path, foreign: Any) -> None:
    write_sealed(state, foreign)
    with pytest.raises(UserError, match=r"state\.pth cannot be read as the state of a run .*overwrite"):
        resume(state)


@pytest.mark.parametrize("wrong", [[], [{"loss": 1}], [{"epoch": 0}, {"epoch": 7}]])
def test_metrics_of_other_epochs_under_a_right_checksum_are_one_message(
    tmp_path: Path, wrong: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, path = str(tmp_path), tmp_path / "checkpoints" / "state.pth"
    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "finish", lambda *_: None)
        adapt(epochs=1, log=log)
    state = read_sealed(path)
    state["metrics"] = wrong
    write_sealed(path, state)
    with pytest.raises(UserError, match=r"metrics\.jsonl cannot be read as the metrics of this run .*overwrite"):
        adapt(epochs=1, log=log)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_damage_is_found(state: Path, data: st.DataObject) -> None:
    whole = state.read_bytes()
    content = bytearray(whole)
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place] ^= data.draw(st.integers(1, 255))
    else:
        del content[place:]
    state.write_bytes(content)
    with pytest.raises(UserError, match="damaged: its checksum is wrong"):
        resume(state)
    state.write_bytes(whole)
    assert whole.count(SEAL) == 1
