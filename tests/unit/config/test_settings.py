"""Settings are refused where they make no sense, and take values of other libraries."""

import numpy as np
import pandas as pd
import pytest

import tllib_ancon
from tests.support.refusals import REFUSED, one_line, refused
from tllib_ancon.cli.commands import COMMANDS
from tllib_ancon.cli.main import parser_of
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.check import CheckConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.config.pretrain import PretrainConfig

DOORS = {"AdaptConfig": tllib_ancon.adapt, "PretrainConfig": PretrainConfig, "PredictConfig": PredictConfig}


@pytest.mark.parametrize("form", [np.array, pd.Series])
def test_values_of_other_libraries_are_taken_as_pythons(form, tmp_path):
    listed = {"scale": form([0.5, 1.0]), "class_names": form(["a", "b"])}
    made = AdaptConfig(beta=np.float32(0.5), epochs=np.int64(3), log=tmp_path, **listed)
    assert repr(made.options) == "{'beta': 0.5}"
    assert (made.epochs, made.log) == (3, str(tmp_path))
    assert (made.scale, made.class_names) == ((0.5, 1.0), ("a", "b"))
    assert type(made.epochs) is int


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["R", "--lr", "0.5", "-t", "a", "b"], {"root": "R", "lr": 0.5, "target": ["a", "b"]}),
        (["R", "--class-names", "ant", "bee"], {"root": "R", "class_names": ["ant", "bee"]}),
        (["--no-hflip", "--pool", "R"], {"root": "R", "no_hflip": True, "no_pool": False}),
        (["--epochs", "2.5", "--scale", "0.1", "x"], {"epochs": "2.5", "scale": [0.1, "x"]}),
    ],
)
def test_words_become_settings(words, given):
    assert COMMANDS["adapt"].settings_in(parser_of("adapt").parsed(words)) == given


@pytest.mark.parametrize(("owner", "settings", "message"), REFUSED["settings"])
def test_what_is_refused(owner, settings, message):
    with refused(message):
        DOORS[owner](**settings)


@pytest.mark.parametrize(
    ("function", "owner"),
    [
        (tllib_ancon.adapt, AdaptConfig),
        (tllib_ancon.evaluate, PredictConfig),
        (tllib_ancon.check, CheckConfig),
    ],
)
def test_settings_at_once_and_one_by_one_are_one_line(function, owner):
    """Single settings beside ``config`` would have no effect."""
    with one_line("beside 1 single settings"):
        function(config=owner(), quiet=True)
