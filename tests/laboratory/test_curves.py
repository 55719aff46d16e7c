"""Figures of epochs: a title that says the result, colours that can be told apart, letters that can be read."""

import io

import pytest
from PIL import Image

from tllib_ancon.laboratory.curves import COLOURS, WITHOUT_LABELS, _result, draw_curves


@pytest.mark.parametrize(
    ("methods", "curves", "title"),
    [
        (["ancon"], {"accuracy": [{0: [50.0, 60.0], 2: [70.0, 72.0]}]}, "ancon: accuracy from 55.0 to 71.0 %"),
        (
            ["ancon", "shot"],
            {"accuracy": [{0: [50.0], 1: [70.0]}, {0: [50.0], 1: [75.5]}]},
            "shot ends with the highest accuracy: 50.0 to 75.5 %",
        ),
        (["ancon"], {"infomax": [{0: [1.5], 1: [2.0]}]}, "ancon: InfoMax from 1.5 to 2"),
        ([], {}, "no numbers by epoch"),
    ],
)
def test_the_title_says_the_result(methods, curves, title) -> None:
    assert _result(methods, curves) == title


def test_a_figure_can_be_read_600_pixels_wide() -> None:
    metrics = [{"epoch": epoch, "infomax": 1.0, "votes": 0.5, "threshold": 0.7} for epoch in range(3)]
    file = io.BytesIO()
    draw_curves([("ancon", 0, metrics)], file, WITHOUT_LABELS)
    assert Image.open(file).width <= 1100  # letters of 10 points keep 11 of their 20 pixels
    assert len(set(COLOURS)) == len(COLOURS)
