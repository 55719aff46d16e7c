"""A second opinion, the predictions of another model, enters the pseudo-labels by its reliability."""

import math
from functools import cache

import pytest
import torch
from torch import nn

import tllib_ancon
from tests.support.killable import differences
from tests.support.refusals import one_line
from tests.support.teachers import CLASSES, Colours, Student, adapt
from tllib_ancon.training.callbacks.teacher import reliability


@cache
def alone():
    return adapt()


def weights(result):
    return dict(result.model.state_dict())


def test_a_better_teacher_improves_the_result():
    by_itself = adapt(epochs=6).metrics
    helped = adapt(epochs=6, teacher=Colours(), workers=2).metrics
    assert helped[1]["teacher_weight"] > 1
    assert helped[-1]["accuracy"] > by_itself[-1]["accuracy"] + 10


@pytest.mark.parametrize("batch_norm", ["source", "mixed"])
def test_a_teacher_that_predicts_as_the_model_counts_half(batch_norm):
    model = Student()
    model[1].running_mean += 0.3
    metrics = adapt(model, teacher=model, epochs=1, batch_norm=batch_norm).metrics
    assert metrics[1]["teacher_weight"] == pytest.approx(0.5)


def test_a_teacher_of_features_counts_as_much_as_the_model():
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))
    how = {"epochs": 1, "method": "self-training", "workers": 0, "quiet": True}
    result = tllib_ancon.adapt(model, torch.randn(24, 4), teacher=nn.Linear(4, 3), **how)
    assert result.metrics[1]["teacher_weight"] == 1


def test_a_teacher_that_predicts_one_class_does_not_count():
    with_teacher = adapt(teacher=Colours(factor=0.0, bias=(9.0, 0.0, 0.0))).metrics
    assert with_teacher[1]["teacher_weight"] < 1e-6
    assert with_teacher[-1]["accuracy"] == alone().metrics[-1]["accuracy"]


@pytest.mark.parametrize(
    ("teacher", "is_by_order"), [(Colours((2, 0, 1), ["BLUE", "RED", "GREEN"]), False), (Colours(), True)]
)
def test_classes_are_matched_by_name_or_by_order_and_a_note_says_so(teacher, is_by_order):
    expected = adapt(Student(CLASSES), teacher=Colours(names=CLASSES))
    result = adapt(Student(CLASSES), teacher=teacher)
    assert differences(weights(expected), weights(result)) == []
    codes = [note.code for note in result.notes]
    assert ("teacher-order" in codes) == is_by_order


WITHOUT_LABELS = (
    '^`teacher` has no effect with `method="tent"`, which makes no labels; leave it out, or choose a method with '
    "pseudo-labels, such as ancon-auto$"
)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"teacher": Colours(factor=torch.nan)},
            "the teacher's logits are not finite on any image",
        ),
        ({"teacher": Colours((0, 1))}, r"^the `teacher` has 2 classes \(0, 1\), and not each of the model's 3 "),
        ({"teacher": Colours(), "method": "tent"}, WITHOUT_LABELS),
        (
            {"teacher": Colours(names=("red", "green", "cyan"))},
            r"\(red, green, blue\) is one of them; pass a teacher with the classes of the model",
        ),
        ({"teacher": nn.Linear(7, 3)}, r"`teacher`: the model cannot be called on images of shape \(8, 3, 8, 8\)"),
        (
            {"teacher": "hf:nowhere"},
            "`teacher`: `arch` hf:nowhere cannot be loaded .*; pass a run directory or hf:NAME, or in Python the "
            "network itself$",
        ),
    ],
)
def test_a_teacher_that_cannot_be_used(settings, message, tmp_path):
    log = tmp_path / "run"
    with one_line(message):
        adapt(Student(CLASSES), log=log, **settings)
    assert not (log / "metrics.jsonl").exists()
    adapt(Student(CLASSES), epochs=1, log=log, teacher=Colours())  # the advice leads on in the same folder


def test_reliability_is_agreement_beyond_chance_times_entropy():
    diverse = 9 * torch.eye(4)[torch.arange(400) % 4]
    constant = 9 * torch.eye(4)[[0]].expand(400, -1)
    assert reliability(diverse, diverse) == pytest.approx(math.log(4))
    assert reliability(constant, constant) == pytest.approx(0.001)
    assert reliability(diverse, diverse.roll(1, 0)) == pytest.approx(0.001)  # less than by chance
    half = torch.cat([diverse[:200], diverse.roll(2, 0)[200:]])
    assert reliability(diverse, half) == pytest.approx(math.log(4) * (0.5 - 0.25) / 0.75)
