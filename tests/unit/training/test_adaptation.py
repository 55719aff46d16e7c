"""The numbers of small adaptations, streams and trainings of a source model are the recorded ones, but for rounding.

After a deliberate change, and for a new version of PyTorch, ``python -m tests.unit.training.test_adaptation`` records
them again.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from tests.support import teachers
from tests.support.domains_on_disk import training, write_domains
from tests.support.json_files import read_json_lines
from tests.support.networks import normalised
from tllib_ancon import online
from tllib_ancon.toolkit.toolkit import find
from tllib_ancon.training.pretrain import pretrain

RECORDED = Path(__file__).parents[2] / "support" / "numbers.json"
RUNS = json.loads(RECORDED.read_text())
"""Name of a run -> its function, its settings and its numbers."""


def of_adapt(_, teacher=None, **settings):
    if teacher is not None:
        settings["teacher"] = getattr(teachers, teacher)()
    return teachers.adapt(mixed_precision="no", threads=1, **settings).metrics


def of_pretrain(folder, **settings):
    log = folder / "run"
    pretrain(training(write_domains(folder), log, mixed_precision="no", threads=1, epochs=2, **settings))
    return read_json_lines(log / "metrics.jsonl")


def of_online(_, sizes, **settings):
    stream = online(teachers.Student(), **settings)
    images = normalised(teachers.PICTURES).repeat(6, 1, 1, 1)
    predicted = torch.cat([*map(stream, images.split(sizes))]).softmax(1)
    return [{"epoch": number, "share": float(predicted[number, 0])} for number in range(0, len(images), 7)]


def numbers_of(name):
    """The numbers of each epoch or sample, but for how fast it was."""
    door, settings, _ = RUNS[name]
    numbers = {}
    with TemporaryDirectory() as folder:
        for epoch in DOORS[door](Path(folder), **settings):
            epoch.pop("images_per_second", None)
            numbers |= {f"{epoch['epoch']} {key}": value for key, value in epoch.items() if isinstance(value, float)}
    return numbers


DOORS = {"adapt": of_adapt, "pretrain": of_pretrain, "online": of_online}


@pytest.mark.skipif(not torch.__version__.startswith("2.15"), reason="recorded with PyTorch 2.15")
@pytest.mark.parametrize("name", RUNS)
def test_the_numbers_are_the_recorded_ones(name, no_gpu):
    if RUNS[name][1].get("method") == "cdan" and find().name != "dalib":
        pytest.skip("the discriminator of TLLib starts from other weights than dalib's, with which this was recorded")
    assert numbers_of(name) == pytest.approx(RUNS[name][2], rel=1e-3, abs=1e-3)


if __name__ == "__main__":
    rows = [f"{json.dumps(name)}: {json.dumps([*RUNS[name][:2], numbers_of(name)])}" for name in RUNS]
    RECORDED.write_text("{\n" + ",\n".join(rows) + "\n}\n")
