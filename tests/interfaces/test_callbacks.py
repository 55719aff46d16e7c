"""Callbacks of a user see each epoch, may end the training, and resume with the run."""

import pytest

import tllib_ancon
from tests.support import small
from tests.support.killable import differences
from tests.support.networks import PIXELS, PREPROCESSING, QUICK, Net, state_of
from tests.support.places import ROOT, blocks_of

PAGE = ROOT / "docs" / "own_callback.md"


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


class Ends(tllib_ancon.Callback):
    def begin_epoch(self, trainer):
        if trainer.epoch == 2:
            raise KeyboardInterrupt


def test_each_epoch_is_seen_once_it_is_scored_and_a_callback_may_end_the_training():
    recorder = Recorder(last=2)
    result = small.adapt(callbacks=[recorder])
    assert recorder.events == [("end", 0), ("begin", 1), ("end", 1), ("begin", 2), ("end", 2)]
    assert [metrics["epoch"] for metrics in result.metrics] == [0, 1, 2]
    assert recorder.steps > 0


def test_a_callback_changes_nothing_and_resumes_with_its_state(tmp_path):
    whole = small.adapt()
    with pytest.raises(KeyboardInterrupt):
        small.adapt(callbacks=[Recorder(), Ends()], log=tmp_path / "run")
    recorder = Recorder()
    resumed = small.adapt(callbacks=[recorder], log=tmp_path / "run")
    assert recorder.events[0] == ("begin", 2)
    assert recorder.steps == small.EPOCHS * 5  # of 21 images in batches of 4; 3 are held out
    assert differences(state_of(whole.model), state_of(resumed.model)) == []


def test_the_example_of_the_page_draws_a_picture(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.chdir(tmp_path)
    code = blocks_of(PAGE.read_text(), "python")[0]
    namespace = {}
    exec(code.partition("result =")[0], namespace)
    tllib_ancon.adapt(Net(), PIXELS, callbacks=[namespace["Plot"]()], **QUICK, **PREPROCESSING)
    assert (tmp_path / "infomax.png").stat().st_size > 1000
