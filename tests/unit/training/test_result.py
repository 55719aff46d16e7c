"""A user is told of an adaptation what its result holds."""

from tllib_ancon.training.result import result_summary


def result(criterion, *scores, better=True, held_out=49, **labelled):
    """Start, selected and last epoch with these scores."""
    epochs = [{"epoch": epoch, criterion: score, **labelled} for epoch, score in enumerate(scores)]
    named = dict(zip(("start", "selected", "last"), epochs, strict=True))
    return {"criterion": criterion, "held_out": held_out, "better_than_start": better, **named}


def summary_lines(result):
    return result_summary(result).splitlines()


def test_start_selected_and_last_are_shown():
    assert summary_lines(result("infomax", 1.0, 1.5, 1.25, accuracy=50.0, ece=0.125)) == [
        "infomax of the 49 held-out images: higher is better",
        "source model (epoch 0): infomax 1.0000, accuracy 50.00 %, ECE (15 bins) 0.1250",
        "adapted model (epoch 1, selected by infomax): infomax 1.5000, accuracy 50.00 %, ECE (15 bins) 0.1250",
        "last epoch (2): infomax 1.2500, accuracy 50.00 %, ECE (15 bins) 0.1250",
    ]
    assert summary_lines(result("corr_c", 0.5, 0.75, 0.8, better=False, held_out=0)) == [
        "corr_c of the target images: lower is better",
        "source model (epoch 0): corr_c 0.5000",
        "adapted model (epoch 1, selected by corr_c): corr_c 0.7500",
        "last epoch (2): corr_c 0.8000",
        "no epoch has a better corr_c than the source model, and adapting may have done harm: a smaller learning rate "
        "often helps, and some labels tell which model is better (certify)",
    ]


def test_a_choice_without_a_score_shows_none():
    lines = summary_lines(result("last", 1.0, 1.0, 1.0, better=None, accuracy=50.0, ece=0.125))
    assert lines[1] == "adapted model (epoch 1, last): accuracy 50.00 %, ECE (15 bins) 0.1250"
    assert summary_lines(result("last", 1.0, 1.0, 1.0, better=None))[0] == "source model (epoch 0)"
