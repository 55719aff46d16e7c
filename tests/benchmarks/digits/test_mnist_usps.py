"""``mnist_usps.sh`` keeps SHOT's protocol: its commands, recorded instead of run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import recorded
from tllib_ancon.cli import adapt, pretrain
from tllib_ancon.cli.main import parse


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """What the script asks of ``tllib-ancon``, with its own defaults."""
    made = recorded.commands("digits/mnist_usps.sh", ["digits", "out"], tmp_path_factory.mktemp("digits"))
    assert {words[0] for words in made} == {"tllib-ancon"}
    return [words[1:] for words in made]


def of(command: str, commands: list[list[str]]) -> list[Any]:
    """The configurations of one command, with every default filled in; of ``evaluate`` what was given."""
    configured = {"pretrain": pretrain.configured, "adapt": adapt.configured}.get(command, lambda args: args)
    return [configured(parse(words)) for words in commands if words[0] == command]


def test_three_seeds_of_both_pairs(commands) -> None:
    assert len(of("pretrain", commands)) == 3 * 2
    assert len(of("adapt", commands)) == 3 * 2 * 6
    methods = {"shot", "self-training", "elr", "ancon", "ancon-auto", "nrc+ancon"}
    assert {args.method for args in of("adapt", commands)} == methods
    assert {args.seed for args in of("adapt", commands)} == {0, 1, 2}


def test_the_source_is_smoothed_and_its_usps_augmented(commands) -> None:
    for args in of("pretrain", commands):
        assert (args.epochs, args.label_smoothing, args.batch_size) == (30, 0.1, 64)
        assert (args.lr, args.momentum, args.weight_decay, args.lr_gamma, args.lr_decay) == (0.01, 0.9, 1e-3, 10, 0.75)
        assert (args.arch, args.bottleneck_dim, args.bottleneck_dropout) == ("shot_lenet", 256, 0.5)
        assert args.hold_out == 0
        assert args.source[0].endswith("_train")
        assert args.scratch
        assert args.no_hflip
        augmented = (4, 10) if args.source == ("usps_train",) else (0, 0)
        assert (args.padding, args.rotation) == augmented


def test_the_target_is_adapted_to_whole_without_augmentation_with_dropout(commands) -> None:
    for args in of("adapt", commands):
        assert (args.epochs, args.hold_out, args.batch_size) == (30, 0, 64)
        assert (args.lr, args.momentum, args.weight_decay, args.lr_gamma, args.lr_decay) == (0.01, 0.9, 1e-3, 10, 0.75)
        assert (args.padding, args.rotation, args.train_resizing) == (0, 0, "res.")
        assert args.method != "shot" or args.to_dict()["shot_coefficient"] == 0.1
        assert args.dropout
        assert args.scratch
        assert args.no_hflip
        assert args.adapted == "all-but-head"
        assert args.target[0].endswith("_train")


def test_the_last_model_is_scored_on_the_test_split(commands) -> None:
    evaluations = of("evaluate", commands)
    assert len(evaluations) == 3 * 2 * (1 + 6)
    for args in evaluations:
        assert args.target[0].endswith("_test")
        assert args.target[0].startswith(Path(args.root).name.lower())
        assert args.checkpoint.endswith("checkpoints/latest.pth")
