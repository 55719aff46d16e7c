"""Digits: the script keeps SHOT's protocol, and images are written in TLLib's layout."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.tables.digits import to_tllib
from tests.benchmarks import recorded
from tllib_ancon.cli.main import parse
from tllib_ancon.data.open import open_domain
from tllib_ancon.models.references import ModelRef
from tllib_ancon.opening.defaults import Facts, resolve


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """What ``mnist_usps.sh`` asks of ``tllib-ancon``, with its own defaults."""
    made = recorded.commands("tables/digits/mnist_usps.sh", ["digits", "out"], tmp_path_factory.mktemp("digits"))
    assert {words[0] for words in made} == {"tllib-ancon"}
    return [words[1:] for words in made]


def configurations(command, commands):
    """Those of one command; of ``evaluate`` what its words say."""
    parsed = [parse(words) for words in commands if words[0] == command]
    if command == "evaluate":
        return parsed
    return [args.command.configured(args) for args in parsed]


def resolved(config):
    """With every default filled in."""
    return resolve(config, Facts(ModelRef())).settings


def settings(config, names):
    return {name: getattr(config, name) for name in names}


OF_BOTH = {
    "epochs": 30,
    "hold_out": 0,
    "batch_size": 64,
    "scratch": True,
    "no_hflip": True,
    "lr": 0.01,
    "momentum": 0.9,
    "weight_decay": 1e-3,
    "lr_gamma": 10,
    "lr_decay": 0.75,
}
OF_SOURCES = {"label_smoothing": 0.1, "arch": "shot_lenet", "bottleneck_dim": 256, "bottleneck_dropout": 0.5}
OF_ADAPTATIONS = {"train_resizing": "res.", "dropout": True, "adapted": "all-but-head"}


def test_shots_protocol_trains_source_models(commands):
    sources = configurations("pretrain", commands)
    assert len(sources) == 3 * 2
    for config in sources:
        assert settings(config, OF_BOTH) == OF_BOTH
        assert settings(config, OF_SOURCES) == OF_SOURCES
        assert config.source[0].endswith("_train")
        augmented = (4, 10) if config.source == ("usps_train",) else (0, 0)
        assert (config.padding or 0, config.rotation) == augmented


def test_shots_protocol_adapts_by_each_method_and_seed(commands):
    adaptations = configurations("adapt", commands)
    assert len(adaptations) == 3 * 2 * 6
    assert {config.method for config in adaptations} == {
        "shot",
        "self-training",
        "elr",
        "ancon",
        "ancon-auto",
        "nrc+ancon",
    }
    assert {config.seed for config in adaptations} == {0, 1, 2}
    for config in map(resolved, adaptations):
        assert settings(config, OF_BOTH) == OF_BOTH
        assert settings(config, OF_ADAPTATIONS) == OF_ADAPTATIONS
        assert (config.padding or 0) == 0
        assert config.target[0].endswith("_train")
        if config.method == "shot":
            assert config.to_dict()["shot_coefficient"] == 0.1


def test_shots_protocol_evaluates_the_last_epoch_on_the_test_images(commands):
    evaluations = configurations("evaluate", commands)
    assert len(evaluations) == 3 * 2 * (1 + 6)
    for args in evaluations:
        assert args.target[0] == f"{Path(args.root).name.lower()}_test"
        assert args.checkpoint.endswith("checkpoints/latest.pth")


def arrays(number, side):
    """``number`` images a split; each is its number in every pixel, sorted by class."""
    levels = np.arange(2 * number, dtype=np.uint8).reshape(2, number, 1, 1)
    values = levels * np.ones((side, side), np.uint8)
    labels = np.sort(np.arange(number) % 10)
    return {"train_x": values[0], "train_y": labels, "test_x": values[1], "test_y": labels}


def test_images_are_written_in_the_layout_of_tllib(tmp_path):
    np.savez(tmp_path / "digits.npz", **arrays(20, 4))
    source = str(tmp_path / "digits.npz")
    to_tllib.main([str(tmp_path), "--mnist", source, "--usps", source, "--resplit-usps", "10"])
    for name, size in (("mnist_train", 20), ("mnist_test", 20), ("usps_train", 30), ("usps_test", 10)):
        domain = open_domain(str(tmp_path / name.partition("_")[0].upper()), "ImageList", [name])
        assert len(domain) == size
        assert domain.num_classes == 10
