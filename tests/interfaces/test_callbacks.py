"""Callbacks of a user see each epoch, may end the training, and resume with the run."""

import re
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import tllib_ancon

PAGE = Path(__file__).resolve().parents[2] / "docs" / "own_callback.md"
SETTINGS = {
    "image_size": 16,
    "norm_mean": (0.5,) * 3,
    "norm_std": (0.25,) * 3,
    "epochs": 3,
    "batch_size": 8,
    "quiet": True,
    "threads": 1,
    "workers": 0,
}


@pytest.fixture
def model():
    return nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(196, 3)).eval()


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (24, 16, 16, 3), dtype=np.uint8)


class Recorder(tllib_ancon.Callback):
    name = "recorder"

    def __init__(self, last=None):
        self.events = []
        self.steps = 0
        self.last = last

    def begin_epoch(self, trainer):
        self.events.append(("begin", trainer.epoch))

    def after_step(self, trainer):
        self.steps += 1

    def after_epoch(self, trainer):
        assert "infomax" in trainer.metrics[-1]
        self.events.append(("end", trainer.epoch))
        if trainer.epoch == self.last:
            trainer.stop_after_this_epoch()

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


def test_each_epoch_is_seen_once_it_is_scored_and_a_callback_may_end_the_training(model, images):
    recorder = Recorder(last=2)
    result = tllib_ancon.adapt(model, images, callbacks=[recorder], **SETTINGS)
    assert recorder.events == [("end", 0), ("begin", 1), ("end", 1), ("begin", 2), ("end", 2)]
    assert [metrics["epoch"] for metrics in result.metrics] == [0, 1, 2]
    assert recorder.steps == 2 * 3


def test_a_callback_changes_nothing_and_resumes_with_its_state(model, images, tmp_path):
    whole = tllib_ancon.adapt(model, images, **SETTINGS)

    class Ends(tllib_ancon.Callback):
        def begin_epoch(self, trainer):
            if trainer.epoch == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tllib_ancon.adapt(model, images, callbacks=[Recorder(), Ends()], log=tmp_path / "run", **SETTINGS)
    recorder = Recorder()
    resumed = tllib_ancon.adapt(model, images, callbacks=[recorder], log=tmp_path / "run", **SETTINGS)
    assert recorder.steps == 3 * 3
    assert recorder.events[0] == ("begin", 2)
    for name, tensor in whole.model.state_dict().items():
        assert resumed.model.state_dict()[name].equal(tensor)


def test_the_example_of_the_page_draws_a_picture(model, images, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.chdir(tmp_path)
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    namespace = {}
    exec(code.partition("result =")[0], namespace)
    tllib_ancon.adapt(model, images, callbacks=[namespace["Plot"]()], **SETTINGS)
    assert (tmp_path / "infomax.png").stat().st_size > 1000
