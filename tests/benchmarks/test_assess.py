from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

from benchmarks.assess import table
from benchmarks.assess.estimates import Calibrated
from benchmarks.assess.points import ESTIMATES

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_no_estimate_covers_nine_of_ten_targets_of_every_left_out_family(capsys) -> None:
    """The reason why the package has no interval without labels."""
    table.main([str(RESULTS / "assess.csv")])
    _, _, *rows, widths = capsys.readouterr().out.strip().splitlines()
    found = np.array([[float(cell.split(";")[1]) for cell in row.split("|")[2:6]] for row in rows])
    assert found.shape == (len(table.JUDGED), len(ESTIMATES))
    assert (found.min(0) < 90).all()
    assert widths in (RESULTS / "assess.md").read_text()


def test_a_family_is_judged_by_what_the_others_choose(capsys, tmp_path: Path) -> None:
    rows = []
    for family in table.JUDGED:
        error = 0.5 if family == "collapsed" else 0.1
        place = {"grid": family if family in table.CHANGES else "pairs", "family": family}
        rows += [{**place, "accuracy": 0.5, **dict.fromkeys(ESTIMATES, 0.5 + error * sign)} for sign in (-1, 1)]
    pd.DataFrame(rows).to_csv(tmp_path / "points.csv", index=False)
    table.main([str(tmp_path / "points.csv")])
    printed = capsys.readouterr().out
    assert "| digits (2) |" + " 10.0; 100 |" * 4 in printed
    assert "| collapsed (2) |" + " 50.0; 0 |" * 4 in printed
    assert "| none |" + " -45.0 to +45.0 |" * 4 in printed


def outputs(generator: np.random.Generator, images: int, scale: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits of ten classes that are the likelier right the larger they are."""
    logits = generator.normal(size=(images, 10)) * scale
    return logits, np.array([generator.choice(10, p=row) for row in softmax(logits, 1)])


def test_estimates_are_exact_on_the_source_itself_and_its_temperature_is_found() -> None:
    logits, labels = outputs(np.random.default_rng(0), 2000)
    source = Calibrated.on(4 * logits, labels)
    assert source.temperature == pytest.approx(4, rel=0.05)
    assert source.confidence == pytest.approx(source.accuracy, abs=0.03)
    assert source.atc(4 * logits) == pytest.approx(source.accuracy)
    assert source.doc(4 * logits) == pytest.approx(source.accuracy)
    assert source.atc(logits) < source.accuracy  # less certain
    assert source.doc(logits) < source.accuracy


def test_the_confidence_of_a_calibrated_model_estimates_its_accuracy() -> None:
    generator = np.random.default_rng(1)
    source = Calibrated.on(*outputs(generator, 2000))
    others, truth = outputs(generator, 2000, scale=1.0)
    accuracy = float((others.argmax(1) == truth).mean())
    assert accuracy < source.accuracy - 0.2
    assert source.doc(others) == pytest.approx(accuracy, abs=0.06)
