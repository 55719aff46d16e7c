"""The lines that an adaptation ends with."""

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.training.result import AdaptationResult, result_summary

START = {"epoch": 0, "infomax": 1.0, "accuracy": 50.0, "ece": 0.1}
SELECTED = {"epoch": 1, "infomax": 1.5, "accuracy": 60.0, "accuracy_one_view": 58.0, "ece": 0.05, "changed": 0.25}
LAST = {"epoch": 2, "infomax": 1.25, "accuracy": 55.5, "ece": 0.2}
RESULT = {"start": START, "selected": SELECTED, "last": LAST, "criterion": "infomax", "held_out": 9}


def test_a_selected_epoch():
    assert result_summary({**RESULT, "better_than_start": False}).splitlines() == [
        "infomax of the 9 held-out images: higher is better",
        "source model (epoch 0): infomax 1.0000, accuracy 50.00 %, ECE (15 bins) 0.1000",
        "adapted model (epoch 1, selected by infomax): infomax 1.5000, accuracy 60.00 %, 58.00 % from one view, "
        "ECE (15 bins) 0.0500",
        "last epoch (2): infomax 1.2500, accuracy 55.50 %, ECE (15 bins) 0.2000",
        "25.0 % of the predicted classes changed",
        "no epoch has a better infomax than the source model, and adapting may have done harm: a smaller learning rate "
        "often helps, and some labels tell which model is better (certify)",
    ]


def test_the_last_epoch_without_labels():
    last = {"epoch": 2, "mean_entropy": 0.5}
    result = {"start": {"epoch": 0}, "selected": last, "last": last, "held_out": 0, "better_than_start": None}
    assert result_summary({**result, "criterion": "last"}).splitlines() == [
        "source model (epoch 0)",
        "adapted model (epoch 2, last)",
    ]


def test_a_result_shows_its_settings_and_its_folder():
    result = {**RESULT, "better_than_start": True}
    shown = str(AdaptationResult(None, [], 1, result, AdaptConfig(method="gce", epochs=3, log="run")))
    assert shown == f"gce, 3 epochs\n{result_summary(result)}\nkept in run"
