from __future__ import annotations

import pytest

from tllib_ancon.training.progress import result_summary


def result(criterion: str, *scores: float, **labelled: float) -> dict:
    """Start, selected and last epoch with these scores."""
    epochs = [{"epoch": epoch, criterion: score, **labelled} for epoch, score in enumerate(scores)]
    return {"criterion": criterion, **dict(zip(("start", "selected", "last"), epochs, strict=True))}


def test_start_selected_and_last_are_shown() -> None:
    lines = result_summary(result("infomax", 1.0, 1.5, 1.25, accuracy=50.0, ece=0.125)).splitlines()
    assert lines == [
        "infomax: higher is better",
        "start (epoch 0): infomax 1.0000, accuracy 50.00 %, ECE (15 bins) 0.1250",
        "selected by infomax (epoch 1): infomax 1.5000, accuracy 50.00 %, ECE (15 bins) 0.1250",
        "last (epoch 2): infomax 1.2500, accuracy 50.00 %, ECE (15 bins) 0.1250",
    ]


def test_without_labels_the_criterion_is_shown_alone() -> None:
    assert "accuracy" not in result_summary(result("corr_c", 0.5, 0.25, 0.25))


@pytest.mark.parametrize(
    ("criterion", "scores", "said"),
    [
        (
            "infomax",
            (1.4649, 1.2764, 1.1),
            "infomax fell below the start's in every epoch (1.4649 at the start, 1.2764",
        ),
        ("corr_c", (0.5, 0.75, 0.8), "corr_c rose above the start's in every epoch (0.5000 at the start, 0.7500"),
        ("infomax", (1.0, 1.5, 0.5), None),
        ("corr_c", (0.5, 0.25, 0.75), None),
        ("infomax", (1.0, 1.0, 1.0), None),
    ],
)
def test_a_criterion_that_prefers_the_start_is_said(criterion: str, scores: tuple, said: str | None) -> None:
    shown = result_summary(result(criterion, *scores))
    assert ("the start model is better than the adapted ones" in shown) == (said is not None)
    assert said is None or said in shown


def test_a_run_without_an_epoch_shows_its_start() -> None:
    alone = result("infomax", 1.0, 1.0, 1.0)
    del alone["selected"], alone["last"]
    assert result_summary(alone) == "infomax: higher is better\nstart (epoch 0): infomax 1.0000"


@pytest.mark.parametrize("criterion", ["last", "none"])
def test_a_choice_without_a_score_shows_none(criterion: str) -> None:
    labelled = {"accuracy": 50.0, "ece": 0.125}
    epochs = [{"epoch": epoch, "infomax": 1.0, **labelled} for epoch in range(2)]
    lines = result_summary({"criterion": criterion, "start": epochs[0], "selected": epochs[1], "last": epochs[1]})
    assert lines.splitlines()[1] == f"selected ({criterion}) (epoch 1): accuracy 50.00 %, ECE (15 bins) 0.1250"
    bare = {"criterion": criterion, "start": {"epoch": 0, "infomax": 1.0}}
    assert result_summary(bare) == "start (epoch 0)"


@pytest.mark.parametrize(
    ("held_out", "scored"), [(49, " over the 49 images held out"), (0, " over the images adapted on")]
)
def test_which_images_the_criterion_scores_is_said(held_out: int, scored: str) -> None:
    shown = result_summary({**result("infomax", 1.0, 1.5, 1.25), "held_out": held_out})
    assert shown.startswith(f"infomax{scored}: higher is better\n")
