"""Settings: every class of them refuses what is no number, and says what it takes instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args, get_origin

import numpy as np
import pytest

from tllib_ancon import config, methods
from tllib_ancon.cli.benchmark import BenchmarkConfig
from tllib_ancon.cli.commands import COMMANDS, DemoConfig, EvaluateConfig, ReportConfig
from tllib_ancon.cli.main import parser_of
from tllib_ancon.errors import UserError
from tllib_ancon.settings import members_of, parts_of, settings_of

GIVEN = {
    config.CertifyConfig: {"run": "r"},
    config.ExportConfig: {"run": "r", "out": "o"},
    BenchmarkConfig: {"table": "t", "root": "r"},
    ReportConfig: {"folders": ["r"]},
}
OWNERS = [
    *(config.AdaptConfig, config.PretrainConfig, config.PredictionsConfig, config.CertifyConfig, config.ExportConfig),
    *(BenchmarkConfig, DemoConfig, EvaluateConfig, ReportConfig),
]


def real(owner: type) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """What a class needs besides, the name and the type of every setting that is made of real numbers."""
    for name, field in settings_of(owner).items():
        if float in parts_of(field.annotation):
            yield GIVEN.get(owner, {}), name, field.annotation
    for method in methods.names() if owner is config.AdaptConfig else ():
        for name, field in methods.settings(method).items():
            if float in members_of(field.annotation):
                yield {"method": method}, name, field.annotation


def placed(kind: Any, number: float) -> Iterator[Any]:
    """The number as a value of this type: in each place of a tuple."""
    several = [member for member in members_of(kind) if get_origin(member) is tuple]
    if not several:
        yield number
    for member in several:
        for place in range(len(get_args(member))):
            yield tuple(number if place == other else 0.5 for other in range(len(get_args(member))))


@pytest.mark.parametrize("owner", OWNERS)
def test_nan_and_infinity_are_refused(owner: type) -> None:
    for given, name, kind in real(owner):
        by_method = owner is config.PretrainConfig and settings_of(owner)[name].metadata[-1].defaults
        for number in (float("nan"), float("inf"), float("-inf"), 1e37):
            for value in placed(kind, number):
                method = {"method": next(iter(by_method))} if by_method else {}
                with pytest.raises(UserError, match=rf"`{name}` must be .*got \(?.*{re.escape(str(number))}"):
                    owner(**{**given, **method, name: value})


def test_there_are_many_of_them() -> None:
    assert sum(len({name for _, name, _ in real(owner)}) for owner in OWNERS) > 50


def test_values_of_other_libraries_are_taken_as_pythons(tmp_path) -> None:
    made = config.AdaptConfig(lr=np.float32(0.5), epochs=np.int64(3), log=tmp_path, scale=np.array([0.5, 1.0]).tolist())
    assert (made.lr, made.epochs, made.log, made.scale) == (0.5, 3, str(tmp_path), (0.5, 1.0))
    assert type(made.epochs) is int


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["R", "--lr", "0.5", "-t", "a", "b"], {"root": "R", "lr": 0.5, "target": ("a", "b")}),
        (["--no-hflip", "--no-channels-last", "R"], {"root": "R", "no_hflip": True, "channels_last": False}),
        (["--channels-last", "--no-deterministic", "R"], {"root": "R", "channels_last": True, "deterministic": False}),
        (["--epochs", "2.5", "--scale", "0.1", "x"], {"epochs": "2.5", "scale": (0.1, "x")}),
        (["--class-prior", "0.5", "--seed", "3"], {"class_prior": "0.5", "seed": 3}),
    ],
)
def test_words_become_settings(words: list[str], given: dict[str, Any]) -> None:
    assert COMMANDS["adapt"].flags.given(parser_of("adapt").parsed(words)) == given
