"""A run from Python that was cut off resumes as if it had not been, whatever it knows besides its weights."""

import pytest

from tests.support import small
from tests.support.falls import collapsing
from tests.support.killable import differences
from tests.support.refusals import one_line
from tests.support.teachers import Colours
from tests.support.teachers import adapt as adapt_with
from tllib_ancon.runs.directory import RunDirectory
from tllib_ancon.training.callbacks.teacher import Teacher
from tllib_ancon.training.trainer import Trainer


def with_teacher(log):
    return adapt_with(teacher=Colours(), log=log)


def collapsed(log):
    return collapsing(log=log)


class Cut(BaseException):
    """Stands for a kill."""


def in_epoch(number):
    return Trainer, "_train_epoch", lambda trainer, *_: trainer.epoch == number


AT_THE_RESULT = RunDirectory, "finish", lambda *_: True


@pytest.mark.parametrize(
    ("run", "moments"),
    [
        (with_teacher, [in_epoch(1), in_epoch(2), AT_THE_RESULT]),
        (collapsed, [AT_THE_RESULT]),
    ],
)
def test_a_run_that_was_cut_off_ends_as_if_it_had_not_been(run, moments, tmp_path, monkeypatch):
    whole = run(tmp_path / "whole")
    for number, (kind, name, comes) in enumerate(moments):
        function = getattr(kind, name)

        def cutting(self, *arguments, function=function, comes=comes):
            if comes(self, *arguments):
                raise Cut
            return function(self, *arguments)

        log = tmp_path / str(number)
        with monkeypatch.context() as patched:
            patched.setattr(kind, name, cutting)
            with pytest.raises(Cut):
                run(log)
        assert not (log / "result.json").exists()
        with monkeypatch.context() as patched:
            patched.setattr(Teacher, "_log_probabilities", lambda *arguments: 1 / 0)  # its predictions are stored
            resumed = run(log)
        assert small.without(resumed.metrics) == small.without(whole.metrics)
        assert differences(dict(whole.model.state_dict()), dict(resumed.model.state_dict())) == []


def test_a_run_with_another_teacher_is_refused(tmp_path):
    adapt_with(teacher=Colours(), log=tmp_path, epochs=1)
    with one_line(r"holds a run with other settings \(inputs.teacher_sha256"):
        adapt_with(teacher=Colours(factor=9.0), log=tmp_path, epochs=1)
