"""Each note says what was decided or may be wrong, which setting changes it, what to do, and how serious it is."""

import json
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support import sides, teachers
from tests.support.levels import UNSCALED, levels, write
from tllib_ancon import adapt, check, evaluate

EXPECTED = json.loads((Path(__file__).parents[1] / "support" / "notes.json").read_text())
PIXELS = np.zeros((20, 8, 8, 3), np.uint8)


def of_tensors(_, least=0, count=12):
    return check(levels(4), torch.linspace(least, 1, count).view(-1, 1, 1, 1).expand(-1, 3, 8, 8), workers=0)


def of_normalised_tensors(_):
    return of_tensors(_, -1, 16)


def of_one_class(_):
    images, labels = sides.pictures(sides=True)
    call = sides.network(sides=True), images[labels == 0]
    checked = check(*call, **sides.LEVEL)
    notes = adapt(*call, **sides.LEVEL, epochs=1).notes
    assert notes[: len(checked.notes)] == checked.notes
    return checked


def of_other_folders(place):
    return evaluate(levels(4, class_names=["pig", "owl", "dog", "cat"]), write(place, ["pig", "kitten"], 4), **UNSCALED)


def of_folders_without_names(place):
    write(place, ["pig", "kitten"], 2)
    (place / "kitten" / "0.png").rename(place / "beside.png")
    return evaluate(levels(2), place, **UNSCALED)


def of_numbers(place):
    return evaluate(levels(2), write(place, "01", 2), **UNSCALED)


def of_labels_from_one(_):
    return evaluate(levels(4), PIXELS, labels=[1, 2, 3, 1] * 5, **UNSCALED)


def of_a_teacher(_):
    return teachers.adapt(teacher=teachers.Colours(), epochs=1)


def of_an_unsure_model(_):
    model = teachers.Student()
    model[5].weight.data.zero_()
    return teachers.adapt(model, epochs=1)


CALLS = (
    of_an_unsure_model,
    of_tensors,
    of_normalised_tensors,
    of_one_class,
    of_other_folders,
    of_folders_without_names,
    of_numbers,
    of_labels_from_one,
    of_a_teacher,
)


@pytest.mark.parametrize("call", CALLS)
def test_the_notes_of_a_call(call, tmp_path):
    notes = json.dumps([astuple(note) for note in call(tmp_path).notes], ensure_ascii=False)
    assert (
        json.loads(notes.replace(f"{tmp_path.parent}/", "").replace(tmp_path.name, "PLACE")) == EXPECTED[call.__name__]
    )
