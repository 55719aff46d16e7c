from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tllib_ancon.errors import UserError
from tllib_ancon.training import files
from tllib_ancon.training.run_directory import RunDirectory
from tllib_ancon.training.sealed_state import SEAL, write_sealed

WEIGHTS = {"weight": torch.zeros(3)}
STATE_OF_A_RUN = {
    "snapshot": {"parts": {"model": WEIGHTS}},
    "metrics": [{"epoch": 0}],
    "selected": False,
    "best": None,
}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """``state.pth`` of a run that was cut off after its first epoch."""
    path = tmp_path / "run" / "checkpoints" / "state.pth"
    path.parent.mkdir(parents=True)
    seal(path, STATE_OF_A_RUN)
    return path


def seal(path: Path, content: Any) -> None:
    files.write_whole(path, lambda file: write_sealed(file, content))


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
@pytest.mark.parametrize("form", ["torch", "pickle"])
def test_a_state_that_would_run_code_is_refused_and_does_not(
    tmp_path: Path, state: Path, sealed: bool, form: str
) -> None:
    victim = tmp_path / "victim"
    bomb = {**STATE_OF_A_RUN, "snapshot": Bomb(victim)}
    with open(state, "wb") as raw:
        file = files.HashingFile(raw)
        torch.save(bomb, file) if form == "torch" else file.write(pickle.dumps(bomb))
        if sealed:
            file.write(SEAL + file.sha256.hexdigest().encode())
    with pytest.raises(UserError, match="damaged" if not sealed else "not the state of a run"):
        resume(state)
    assert not victim.exists()


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        WEIGHTS,
        *({**STATE_OF_A_RUN, name: 3} for name in STATE_OF_A_RUN),
        {**STATE_OF_A_RUN, "snapshot": {"parts": {}}},
        {**STATE_OF_A_RUN, "metrics": []},
        {**STATE_OF_A_RUN, "metrics": [3]},
        {**STATE_OF_A_RUN, "metrics": [{"epoch": "0"}]},
        {**STATE_OF_A_RUN, "metrics": [{"epoch": 0, 3: 1.0}]},
        {**STATE_OF_A_RUN, "metrics": [{"epoch": 0, "loss": torch.ones(1)}]},
        {**STATE_OF_A_RUN, "metrics": [{"epoch": 0, "loss": 10**5000}]},
    ],
)
def test_a_state_with_other_content_and_a_right_checksum_is_refused(state: Path, content: Any) -> None:
    seal(state, content)
    with pytest.raises(UserError, match=r"state\.pth is not the state of a run.*overwrite"):
        resume(state)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_damage_is_found(state: Path, data: st.DataObject) -> None:
    seal(state, STATE_OF_A_RUN)
    content = bytearray(state.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place] ^= data.draw(st.integers(1, 255))
    else:
        del content[place:]
    state.write_bytes(content)
    with pytest.raises(UserError, match="damaged: its checksum is wrong"):
        resume(state)
