"""Digits: the script keeps SHOT's protocol, and its table has the means of the runs that are there."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.tables.digits import lists, table, to_tllib
from tests.benchmarks import recorded
from tllib_ancon.cli.main import parse
from tllib_ancon.data.open import open_domain
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.training.facts import facts_of
from tllib_ancon.training.resolve import resolve
from tllib_ancon.training.source import Source


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """What ``mnist_usps.sh`` asks of ``tllib-ancon``, with its own defaults."""
    made = recorded.commands("tables/digits/mnist_usps.sh", ["digits", "out"], tmp_path_factory.mktemp("digits"))
    assert {words[0] for words in made} == {"tllib-ancon"}
    return [words[1:] for words in made]


def of(command: str, commands: list[list[str]]) -> list[Any]:
    """The configurations of one command, with every default filled in; of ``evaluate`` what was given."""
    parsed = [parse(words) for words in commands if words[0] == command]
    return [args.command.configured(args) if command in ("pretrain", "adapt") else args for args in parsed]


def test_shots_protocol_is_kept(commands) -> None:
    sources, adaptations, evaluations = (of(command, commands) for command in ("pretrain", "adapt", "evaluate"))
    assert (len(sources), len(adaptations), len(evaluations)) == (3 * 2, 3 * 2 * 6, 3 * 2 * (1 + 6))
    for args in (*sources, *(resolve(one, facts_of(one, Source()))[0] for one in adaptations)):
        assert (args.epochs, args.hold_out, args.batch_size, args.scratch, args.no_hflip) == (30, 0, 64, True, True)
        assert (args.lr, args.momentum, args.weight_decay, args.lr_gamma, args.lr_decay) == (0.01, 0.9, 1e-3, 10, 0.75)
    for args in sources:
        assert (args.label_smoothing, args.arch) == (0.1, "shot_lenet")
        assert (args.bottleneck_dim, args.bottleneck_dropout) == (256, 0.5)
        assert args.source[0].endswith("_train")
        assert (args.padding or 0, args.rotation) == ((4, 10) if args.source == ("usps_train",) else (0, 0))
    assert {args.method for args in adaptations} == {*table.METHODS[1:]}
    assert {args.seed for args in adaptations} == {0, 1, 2}
    for args in adaptations:
        assert (args.padding or 0, args.rotation, args.train_resizing) == (0, 0, "res.")
        assert args.method != "shot" or args.to_dict()["shot_coefficient"] == 0.1
        assert (args.dropout, resolve(args, facts_of(args, Source()))[0].adapted) == (True, "all-but-head")
        assert args.target[0].endswith("_train")
    for args in evaluations:
        assert args.target[0] == f"{Path(args.root).name.lower()}_test"
        assert args.checkpoint.endswith("checkpoints/latest.pth")


def test_means_over_the_seeds_that_are_there(tmp_path: Path, capsys) -> None:
    runs = [("MNIST-USPS", seed, "shot", 90.0 + 2 * seed) for seed in range(3)]
    for pair, seed, method, accuracy in (*runs, ("USPS-MNIST", 0, "ancon", 80.0)):
        (tmp_path / f"{pair}-seed{seed}").mkdir()
        scores = {"accuracy": accuracy, "ece": 0.125}
        (tmp_path / f"{pair}-seed{seed}" / f"{method}.json").write_text(json.dumps(scores))
    table.main([str(tmp_path), "--csv", str(tmp_path / "runs.csv")])
    lines = capsys.readouterr().out.splitlines()
    assert lines.index("| ancon | – | 80.00 (1 seed) |") > lines.index("| shot | 92.00 ± 2.00 (3 seeds) | – |")
    assert "| shot, published by SHOT | 97.9 | 98.0 |" in lines
    assert (tmp_path / "runs.csv").read_text().splitlines() == [
        "pair,method,seed,accuracy,ece",
        *(f"MNIST-USPS,shot,{seed},{accuracy},0.1250" for seed, accuracy in enumerate(("90.00", "92.00", "94.00"))),
        "USPS-MNIST,ancon,0,80.00,0.1250",
    ]
    with pytest.raises(UserError, match=r"holds no PAIR-seedN/METHOD\.json"):
        table.main([str(tmp_path / "other")])


def arrays(number: int, side: int) -> dict[str, np.ndarray]:
    """``number`` images a split; each is its number in every pixel, sorted by class."""
    values = np.arange(2 * number, dtype=np.uint8).reshape(2, number, 1, 1) * np.ones((side, side), np.uint8)
    labels = np.sort(np.arange(number) % 10)
    return {"train_x": values[0], "train_y": labels, "test_x": values[1], "test_y": labels}


def test_lists_of_parts_open_and_name_the_images_where_they_lie(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(lists.PARTS, "target", ("train", 5))
    np.savez(tmp_path / "digits.npz", **arrays(20, 4))
    source, digits, out = (str(tmp_path / name) for name in ("digits.npz", "digits", "lists"))
    assert to_tllib.main([digits, "--mnist", source, "--usps", source]) == 0
    lists.main([digits, out])
    for domain, (part, size) in product(("mnist", "usps"), {"source": 20, "target": 5, "test": 20}.items()):
        found = open_domain(out, "ImageList", [f"{domain}_{part}"], allow_outside=True)
        assert (len(found), found.num_classes) == (size, 10)
        assert all(path.startswith(digits) for path in found.paths)
