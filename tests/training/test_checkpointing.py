"""What a run stores is read to the last bit, and damage or code in it is refused."""

import copy
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.end_to_end.killable import differences
from tests.support.refusals import one_line
from tllib_ancon.data.domain import Domain
from tllib_ancon.training.checkpointing import (
    SEAL,
    _SavedPredictions,
    copy_to_cpu,
    read_predictions,
    restore_snapshot,
    take_snapshot,
    write_predictions,
    write_sealed,
)
from tllib_ancon.training.inference import Outputs
from tllib_ancon.training.run import RunDirectory


def parts(width=2):
    model = nn.Linear(width, 3)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=width, momentum=0.9)}


def test_a_copied_snapshot_puts_everything_back_whatever_was_trained_and_drawn_since():
    trained = parts()
    trained["model"](torch.ones(1, 2)).sum().backward()
    trained["optimizer"].step()
    copied = copy_to_cpu(take_snapshot(trained))
    same = copy.deepcopy(copied)
    trained["optimizer"].step()
    drawn = torch.rand(3), random.random(), np.random.rand()
    assert differences(copied, copy_to_cpu(take_snapshot(trained)))
    assert differences(copied, same) == []
    restore_snapshot(new := parts(), copied)
    assert differences(copy_to_cpu(take_snapshot(new)), same) == []
    assert torch.equal(torch.rand(3), drawn[0])
    assert (random.random(), np.random.rand()) == drawn[1:]


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
def test_a_part_that_does_not_fit_is_named(part, state):
    snapshot = take_snapshot(parts())
    if part == "random generators":
        del snapshot["numpy"]
    snapshot["parts"][part] = state
    with one_line(rf"cannot be read as its {part} \(.*overwrite"):
        restore_snapshot(parts(), snapshot)


WEIGHTS = {"weight": torch.zeros(3)}
STATE_OF_A_RUN = {"snapshot": {"parts": {"model": WEIGHTS}}, "metrics": [{"epoch": 0}], "selected": False, "best": None}


@pytest.fixture
def state(tmp_path):
    """``state.pth`` of a run that was cut off after its first epoch."""
    path = tmp_path / "run" / "checkpoints" / "state.pth"
    path.parent.mkdir(parents=True)
    write_sealed(path, STATE_OF_A_RUN)
    return path


def resume(state):
    return RunDirectory(state.parent.parent).resume()


class Bomb:
    def __init__(self, victim):
        self.victim = victim

    def __reduce__(self):
        return Path.touch, (self.victim,)


@pytest.mark.parametrize("sealed", [True, False])
def test_a_state_that_would_run_code_is_refused_and_does_not(tmp_path, state, sealed):
    bomb = Bomb(tmp_path / "victim")
    if sealed:
        write_sealed(state, {**STATE_OF_A_RUN, "snapshot": bomb})
    else:
        state.write_bytes(pickle.dumps(bomb))
    with one_line("cannot be read as the state of a run" if sealed else "damaged"):
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
def test_other_entries_under_a_right_checksum_are_one_message(state, foreign):
    write_sealed(state, foreign)
    with one_line(r"state\.pth cannot be read as the state of a run .*overwrite"):
        resume(state)


@given(st.data())
def test_any_damage_is_found(state, data):
    whole = state.read_bytes()
    content = bytearray(whole)
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place] ^= data.draw(st.integers(1, 255))
    else:
        del content[place:]
    state.write_bytes(content)
    with one_line("damaged: its checksum is wrong"):
        resume(state)
    state.write_bytes(whole)
    assert whole.count(SEAL) == 1


LOGITS = np.arange(12, dtype=np.float32).reshape(4, 3)
FULL = _SavedPredictions(
    indices=np.arange(4),
    logits=LOGITS,
    labels=np.array([0, 1, 2, 0]),
    features=np.ones((4, 2), np.float16),
    votes=np.full((4, 3), 65535, np.uint16),
    paths=np.array(["a.png", "ü/\udcff.png", "c", "d"]),
)


@pytest.mark.parametrize(("largest", "kind"), [(65504.0, np.float16), (1e6, np.float32)])
def test_images_are_kept_by_their_position_and_features_stay_finite(tmp_path, largest, kind):
    target = Domain.of_files("d", ["a.png", "", "b.png", "", "", "c.png"], ["x", "y"], [1, 0, 0, 0, 0, 1])
    target = target.subset([2, 5])
    features = torch.tensor([[0.5], [-largest]])
    predictions = Outputs(torch.arange(2), features, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    write_predictions(tmp_path / "predictions.npz", predictions, target, torch.eye(2))
    kept = read_predictions(tmp_path)
    assert kept.indices.tolist() == [2, 5]
    assert kept.labels.tolist() == [0, 1]
    assert kept.logits.tolist() == [[1, 2], [3, 4]]
    assert kept.paths.tolist() == ["b.png", "c.png"]
    assert kept.votes.tolist() == [[1, 0], [0, 1]]
    assert kept.features.dtype == kind
    assert kept.features.tolist() == features.tolist()


def test_damage_and_objects_are_refused_and_nothing_is_run(tmp_path):
    path = tmp_path / "predictions.npz"
    bomb = Bomb(tmp_path / "victim")
    np.savez(path, logits=LOGITS)
    with one_line(r"cannot be read as predictions .*'indices'"):
        read_predictions(tmp_path)
    objects = np.array([bomb], dtype=object)
    np.savez(path, indices=objects, logits=objects)
    for content in (path.read_bytes(), pickle.dumps(bomb), b"PK"):
        path.write_bytes(content)
        with one_line("cannot be read as arrays"):
            read_predictions(tmp_path)
    assert not bomb.victim.exists()
