from __future__ import annotations

import pytest

from tllib_ancon.errors import MOST_SHOWN, megabytes, unknown_name

MANY = [f"network_{number}" for number in range(MOST_SHOWN)]


@pytest.mark.parametrize("given", ["corr-c", "CORR_C", "corrc", "cor_c"])
def test_the_nearest_name_is_told_whatever_its_case_and_dashes(given: str) -> None:
    message = str(unknown_name("criterion", given, ["snd", "corr_c"]))
    assert message == f"unknown criterion {given!r}; did you mean 'corr_c'? Valid names: corr_c, snd"


def test_a_name_like_no_other_gets_all_of_a_few() -> None:
    assert str(unknown_name("criterion", "xyz", ["snd", "corr_c", "snd"])) == (
        "unknown criterion 'xyz'. Valid names: corr_c, snd"
    )


def test_of_many_names_only_the_nearest_are_shown() -> None:
    message = str(unknown_name("network", "mobilenet_v2", [*MANY, "mobilenetv2_100"]))
    assert "did you mean 'mobilenetv2_100'? Nearest of 61 valid names: mobilenetv2_100" in message
    assert message.count(",") < 6


def test_many_names_unlike_it_are_counted() -> None:
    assert str(unknown_name("network", "xyz", [*MANY, "b"])) == (
        "unknown network 'xyz'. None of 61 valid names is like it"
    )


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0.0 MB"),
        (1, "0.1 MB"),
        (100_000, "0.1 MB"),
        (950_000, "1.0 MB"),
        (1_000_001, "1.1 MB"),
        (30_000_000, "30 MB"),
        (27_670_116_110_564_327_424, "27,670,116,110,565 MB"),
    ],
)
def test_megabytes_are_rounded_up(count: int, shown: str) -> None:
    assert megabytes(count) == shown
