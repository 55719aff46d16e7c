"""What each option of caution changes, on the demo's digits: with and without a shift, of classes too.

    python -m benchmarks.do_no_harm.options OUT [--seeds 0 1 2] [--methods ancon-auto] [--options NAME …] [--epochs 12]

The source models are the demo's. The same command continues what was interrupted. Prints Markdown: for each target the
accuracy of the start and, a row an option, the paired difference to the option "default" with its standard error over
seeds and targets, and the worst difference to the start. Labels are used for these numbers alone.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from tllib_ancon import adapt
from tllib_ancon.data.demo import CROP, SOURCE, TARGET, write_demo_domains
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.domains import open_domain
from tllib_ancon.data.sampling import hold_out
from tllib_ancon.paper.demo import Demo
from tllib_ancon.training.pretrain import pretrain

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "criterion last": {"criterion": "last"},
    "batch-norm mixed": {"batch_norm": "mixed"},
    "batch-norm source": {"batch_norm": "source"},
    "pull 0.001": {"pull": 0.001},
    "pull 0.01": {"pull": 0.01},
    "warm-up 50 steps": {"warmup_steps": 50},
    "mean of the last 3 epochs": {"average_last": 3, "criterion": "last"},
    "equal classes": {"class_prior": "uniform"},
}
TAIL, FEW_CLASSES = 20, 4
DEFAULT = "default"


@dataclass(frozen=True)
class Target:
    """What is adapted to, and at which rate.

    Attributes:
        name: in the tables
        full_rate: the backbone learns at the full rate
    """

    name: str
    full_rate: bool = False

    def domain(self, root: str, seed: int) -> Domain:
        if self.name == "no shift":
            source = open_domain(root, "ImageList", [SOURCE])
            _, held_out = hold_out(len(source), 0.1, seed)
            return source.subset(held_out)
        target = open_domain(root, "ImageList", [TARGET])
        assert target.labels is not None
        labels, generator = np.asarray(target.labels), np.random.default_rng(0)
        if self.name == "long tail":
            shares = TAIL ** -(np.arange(10) / 9)
            return target.subset(np.flatnonzero(generator.random(len(labels)) < shares[labels]))
        return target.subset(np.flatnonzero(labels < FEW_CLASSES)) if self.name == "few classes" else target


TARGETS = (
    Target("handwritten"),
    Target("handwritten, full rate", full_rate=True),
    Target("long tail"),
    Target("few classes"),
    Target("no shift"),
)


@dataclass(frozen=True)
class Result:
    """Of one run, in percent."""

    target: str
    method: str
    option: str
    seed: int
    start: float
    selected: float


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.do_no_harm.options",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", default=["ancon-auto"])
    parser.add_argument("--options", nargs="+", choices=OPTIONS, default=list(OPTIONS), help="by default all")
    parser.add_argument("--epochs", type=int, default=12, help="of an adaptation (default: 12)")
    args = parser.parse_args()
    demo = Demo(args.out, tuple(args.seeds), source_epochs=10, epochs=args.epochs, jobs=1)
    write_demo_domains(args.out / "data")
    results = list(made(demo, args.methods, list(dict.fromkeys([DEFAULT, *args.options]))))
    (args.out / f"{'_'.join(args.methods)}.json").write_text(
        json.dumps([vars(result) for result in results], indent=2) + "\n"
    )
    for method in args.methods:
        print(table(method, [result for result in results if result.method == method]), flush=True)


def made(demo: Demo, methods: Sequence[str], options: Sequence[str]) -> Iterator[Result]:
    """The results of all runs; those that are not finished are made."""
    for seed in demo.seeds:
        pretrain(demo.source(seed))
        for method in methods:
            for target in TARGETS:
                for option in options:
                    yield _result(demo, seed, method, target, option, OPTIONS[option])


def _result(demo: Demo, seed: int, method: str, target: Target, option: str, settings: Mapping[str, Any]) -> Result:
    name = "-".join([method, target.name, option]).replace(" ", "-").replace(",", "")
    domain = target.domain(str(demo.out / "data"), seed)
    assert domain.labels is not None
    run = adapt(
        str(demo.directory("source", seed).path),
        domain,
        labels=domain.labels.tolist(),
        method=method,
        log=str(demo.out / "options" / f"{name}-seed{seed}"),
        **{**of_all(demo, seed, target, len(domain)), **settings},
    )
    start, selected = (run.summary[part]["accuracy"] for part in ("start", "selected"))
    return Result(target.name, method, option, seed, start, selected)


def of_all(demo: Demo, seed: int, target: Target, images: int) -> dict[str, Any]:
    """The settings that all adaptations to a target of so many images share."""
    return {
        "seed": seed,
        "epochs": demo.epochs,
        "batch_size": 64 if images > 500 else 32,
        "criterion": "infomax",
        "scratch": target.full_rate,
        "image_size": CROP,
        "scale": (0.5, 1.0),
        "no_hflip": True,
        "threads": 1,
        "workers": 0,
        "device_augmentation": True,
        "quiet": True,
    }


def table(method: str, results: Sequence[Result]) -> str:
    """A row an option, a column a target."""
    targets = list(dict.fromkeys(result.target for result in results))
    seeds = len({result.seed for result in results})
    lines = [
        f"## {method}, {seeds} seeds",
        "",
        "| option | " + " | ".join(targets) + " | - default | worst - start |",
        "|---|" + "---:|" * (len(targets) + 2),
        "| start | " + " | ".join(f"{_mean(results, target, DEFAULT, 'start'):.1f}" for target in targets) + " | | |",
    ]
    default = {(one.target, one.seed): one.selected for one in results if one.option == DEFAULT}
    for option in dict.fromkeys(result.option for result in results):
        own = [one for one in results if one.option == option]
        differences = [one.selected - default[one.target, one.seed] for one in own]
        error = stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else 0.0
        worst = min(one.selected - one.start for one in own)
        means = " | ".join(f"{_mean(results, target, option, 'selected'):.1f}" for target in targets)
        lines.append(f"| {option} | {means} | {fmean(differences):+.2f} ± {error:.2f} | {worst:+.1f} |")
    return "\n".join(lines) + "\n"


def _mean(results: Sequence[Result], target: str, option: str, part: str) -> float:
    return fmean(getattr(one, part) for one in results if one.target == target and one.option == option)


if __name__ == "__main__":
    main()
