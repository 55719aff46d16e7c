from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from benchmarks.assess.estimates import Calibrated
from benchmarks.assess.points import ESTIMATES, JUDGED, main

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_no_estimate_covers_nine_of_ten_targets_of_every_left_out_family(capsys) -> None:
    """The reason why the package has no interval without labels."""
    main([str(RESULTS), str(RESULTS), "--table"])
    _, _, *rows, widths = capsys.readouterr().out.strip().splitlines()
    found = np.array([[float(cell.split(";")[1]) for cell in row.split("|")[2:6]] for row in rows])
    assert found.shape == (len(JUDGED), len(ESTIMATES))
    assert (found.min(0) < 90).all()
    assert widths in (RESULTS / "assess.md").read_text()


def test_estimates_are_exact_on_the_source_itself_and_its_temperature_is_found() -> None:
    generator = np.random.default_rng(0)
    logits = 3 * generator.normal(size=(2000, 10))  # the likelier right the larger
    labels = np.array([generator.choice(10, p=row) for row in softmax(logits, 1)])
    source = Calibrated.on(4 * logits, labels)
    assert source.temperature == pytest.approx(4, rel=0.05)
    assert source.confidence == pytest.approx(source.accuracy, abs=0.03)
    assert source.atc(4 * logits) == pytest.approx(source.accuracy)
    assert source.doc(4 * logits) == pytest.approx(source.accuracy)
    assert source.atc(logits) < source.accuracy  # less certain
    assert source.doc(logits) < source.accuracy
