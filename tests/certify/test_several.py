"""Several adapted models, certified by one stream of labels."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tllib_ancon
from tests.certify.examples import CLASSES
from tllib_ancon.certification import stopping_times
from tllib_ancon.certifying.session import Comparison, Session, in_words
from tllib_ancon.errors import UserError

IMAGES, CHANGED = 300, 100
NAMES, START = [f"{place:03}.jpg" for place in range(IMAGES)], np.arange(IMAGES) % 2


def outcomes_of(share: float, seed: int) -> np.ndarray:
    """Of a model that changes 100 of 300 classes, of which this share becomes right, the rest wrong."""
    generator, right = np.random.default_rng(seed), round(share * CHANGED)
    outcomes = np.zeros(IMAGES, dtype=np.int8)
    outcomes[generator.permutation(np.flatnonzero(START == 1))[:right]] = 1
    outcomes[generator.permutation(np.flatnonzero(START == 0))[: CHANGED - right]] = -1
    return outcomes


def compared(*outcomes: np.ndarray) -> Comparison:
    """Every image is of class 0."""
    said = [np.select([one == 1, one == -1], [0, 2], START) for one in outcomes]
    return Comparison(START, said, NAMES, CLASSES, [f"model {number}" for number in range(len(said))])


def test_one_of_several_that_are_no_better_is_returned_with_probability_delta_at_most() -> None:
    """At the worst time to stop, of 5,000 common orders. Each at delta by itself is too often wrong, and a z-test."""
    models = [outcomes_of(0.5, seed) for seed in range(5)]
    certified, population = np.zeros((3, 5000), dtype=bool), {"disagreements": CHANGED, "images": IMAGES}
    orders = np.random.default_rng(1).permuted(np.tile(np.arange(IMAGES), (5000, 1)), axis=1)
    for outcomes in models:
        drawn = outcomes[orders]
        streams = drawn[drawn != 0].reshape(5000, CHANGED)
        for row, delta in enumerate((Session(compared(*models)).tests[0].delta, 0.05)):
            certified[row] |= stopping_times(streams, delta, side="better", **population).verdicts == 1
        labels = np.arange(10, CHANGED)
        certified[2] |= (streams.cumsum(axis=1, dtype=int)[:, labels - 1] > 2.33 * np.sqrt(labels)).any(axis=1)
    union, each_at_delta, z_test = certified.mean(axis=1)
    assert union <= 0.05 < min(each_at_delta, z_test)


@pytest.mark.parametrize("seed", range(5))
def test_each_model_is_tested_by_its_own_disagreements_in_the_common_order(seed: int) -> None:
    models = [outcomes_of(share, seed + number) for number, share in enumerate((0.5, 0, 0.65))]
    session, asked = Session(compared(*models), seed=seed), []
    order = [session.asked(place).position for place in range(len(session))]
    while session.question is not None:
        asked.append(session.question.position)
        session.answer(0)
    for outcomes, test in zip(models, session.tests, strict=True):
        own = outcomes[order][outcomes[order] != 0][None]
        (end,) = stopping_times(own, 0.05 / 3, disagreements=CHANGED, images=IMAGES, side="better").labels
        assert test.outcomes == tuple(own[0, : len(test.outcomes)])
        assert len(test.outcomes) <= end
        assert len(test.outcomes) == end or session.test.verdict == "better" != test.verdict
    found = session.certificate
    assert (found["verdict"], found["model"], found["returned"], found["asked"]) == ("better", 2, "adapted", len(asked))
    skipped = [place for place in order[: order.index(asked[-1])] if place not in asked]
    assert skipped
    assert not any(models[number][skipped].any() for number in (0, 2))


def test_none_of_worse_models_is_returned_and_the_session_goes_on_from_its_file(tmp_path: Path) -> None:
    models, log = compared(outcomes_of(0.5, 0) * 0, outcomes_of(0.1, 1), outcomes_of(0.2, 2)), tmp_path / "log"
    for end in (5, 12, IMAGES):
        session = Session(models, log=log)
        while session.question is not None and len(session.answers) < end:
            session.answer(0)
            if session.question is not None:
                session.undo()
                session.answer(0)
    found = session.certificate
    assert Session(models, log=log).certificate == found
    assert (found["returned"], found["verdict"], found["settled"], found["threshold"]) == ("start", "worse", True, 40)
    assert in_words(found)[1] == "model 0: equal to the source model on all images, left out"
    with pytest.raises(UserError, match="about other predictions"):
        Session(compared(outcomes_of(0.1, 1)), log=log)


def test_the_classes_of_a_question_come_in_every_order() -> None:
    session = Session(Comparison([0] * 600, [[1] * 600, [2] * 600, [1] * 600], ["image"] * 600, CLASSES, [*"abc"]))
    _, counts = np.unique([session.asked(place).options for place in range(600)], axis=0, return_counts=True)
    assert (len(counts), min(counts) > 60) == (6, True)


class Moved(nn.Sequential):
    """Says the class that an image's pixels are, so many further."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return nn.functional.one_hot((images[:, 0, 0, 0].round().long() + len(self)) % 3, 3).float()


def test_a_list_of_models_in_python() -> None:
    labels = np.arange(60) % 3
    images = torch.from_numpy(labels).float().reshape(-1, 1, 1, 1).expand(-1, 3, 4, 4)
    right, source, wrong, equal = (Moved(*(nn.Identity() for _ in range(number))) for number in (0, 1, 2, 1))
    given = {"labels": labels, "workers": 0}
    found = tllib_ancon.certify(source, (wrong, right, equal), images, **given).certificate
    assert (found["returned"], found["model"]) == ("adapted", 1)
    assert [one["disagreements"] for one in found["candidates"]] == [60, 60, 0]
    for models in ([wrong, wrong], []):
        with pytest.raises(UserError, match="each given once"):
            tllib_ancon.certify(source, models, images, **given)
    with pytest.raises(UserError, match="nothing to certify"):
        tllib_ancon.certify(source, [equal], images, **given)
