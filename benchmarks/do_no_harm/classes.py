"""What each class prior changes where classes are balanced, long-tailed, few, and where there is no shift.

    python -m benchmarks.do_no_harm.classes OFFICE31 RUNS OUT [--pairs A-D …] [--kinds …] [--variants …] [--seeds 0]

RUNS is what ``benchmarks/evidence/run.sh`` made: its source models are adapted. For each pair, kind of target and seed
every variant is run for about 80 steps, with the logits of every epoch kept for :mod:`benchmarks.do_no_harm.round2`;
the same command continues what was interrupted. Prints Markdown: a row a variant, a column a kind, the mean accuracy in
percent, the paired difference to ``ancon-auto, uniform`` with its standard error, and the worst difference to the
start. Labels make the targets and these numbers, and nothing else.

Kinds: ``balanced``, the whole domain; ``long-tail``, where the share of a class that is kept falls to a twentieth, in a
random order of the classes; ``few-classes``, ten of them at random; ``no-shift``, the images that the source model was
not trained on, of its own domain.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tllib_ancon import adapt, predict
from tllib_ancon.config import read_file
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.domains import open_domain
from tllib_ancon.data.sampling import hold_out
from tllib_ancon.self_training.class_prior import estimate_class_prior, likeliest_class_prior

PLAN = Path(__file__).parents[1] / "evidence" / "office31.toml"
TAIL, FEW_CLASSES, STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 20, 10, 80, 3, 20
PAIRS = ("A-D", "A-W", "D-W", "W-D", "D-A", "W-A")
DOMAINS = ("A", "D", "W")
OF_ANCON = ("smoothing", "beta", "convention")


def of_equal_classes(probabilities: Tensor) -> Tensor:
    return torch.full((probabilities.shape[1],), 1 / probabilities.shape[1])


def likely(probabilities: Tensor) -> Tensor:
    """Half of the most likely prior, half equal classes."""
    return (likeliest_class_prior(probabilities) + of_equal_classes(probabilities)) / 2


PRIORS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "ancon-auto, uniform": of_equal_classes,
    "ancon-auto, likely": likely,
    "ancon-auto, counted": estimate_class_prior,
}
VARIANTS = ("self-training", "ancon", *PRIORS)
BASE = "ancon-auto, uniform"


@dataclass(frozen=True)
class Setting:
    """A pair of domains, or one without shift, and which of the target's images are adapted to."""

    pair: str
    kind: str
    seed: int

    @property
    def source(self) -> str:
        return self.pair.partition("-")[0]

    def domain(self, root: str) -> Domain:
        whole = open_domain(root, "Office31", [self.pair.partition("-")[2] or self.source])
        assert whole.labels is not None
        if self.kind == "no-shift":
            return whole.subset(hold_out(len(whole), 0.1, self.seed)[1])
        generator = np.random.default_rng(self.seed)
        return whole.subset(drawn(np.asarray(whole.labels), whole.num_classes, self.kind, generator))


def drawn(labels: np.ndarray, num_classes: int, kind: str, generator: np.random.Generator) -> np.ndarray:
    """Positions of a part of the images whose classes are of this kind, in a random order of the classes."""
    order = generator.permutation(num_classes)
    if kind == "long-tail":
        return np.flatnonzero(generator.random(len(labels)) < TAIL ** -(order / (num_classes - 1))[labels])
    return np.flatnonzero(order[labels] < FEW_CLASSES) if kind == "few-classes" else np.arange(len(labels))


@dataclass(frozen=True)
class Result:
    """Accuracies of one run, in percent."""

    setting: Setting
    variant: str
    start: float
    selected: float


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.do_no_harm.classes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("root", metavar="OFFICE31")
    parser.add_argument("runs", type=Path, metavar="RUNS")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--pairs", nargs="+", choices=PAIRS, default=PAIRS, help="of the kinds with a shift")
    parser.add_argument("--kinds", nargs="+", default=("long-tail", "few-classes", "no-shift", "balanced"))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    args = parser.parse_args()
    settings = [
        Setting(pair, kind, seed)
        for seed in args.seeds
        for kind in args.kinds
        for pair in (DOMAINS if kind == "no-shift" else args.pairs)
    ]
    results = [
        result for setting in settings for result in made(args.root, args.runs, args.out, setting, args.variants)
    ]
    print(table(results, args.kinds), flush=True)


def made(root: str, runs: Path, out: Path, setting: Setting, variants: Sequence[str]) -> Iterator[Result]:
    """The results of every variant; runs that are not finished are made."""
    domain = setting.domain(root)
    assert domain.labels is not None
    plan = read_file(PLAN)
    settings = {**plan["common"], **plan["adapt"]}
    common = {name: value for name, value in settings.items() if name not in {"epochs", "reciprocal", *OF_ANCON}}
    source = str(runs / "source" / f"erm-{setting.source}-seed{setting.seed}" / "checkpoints" / "best.pth")
    steps = math.ceil(0.9 * len(domain) / common["batch_size"])
    common["epochs"] = min(MOST_EPOCHS, max(FEWEST_EPOCHS, round(STEPS / steps)))
    start = torch.as_tensor(predict(source, domain, workers=0, threads=1).probabilities)
    for variant in variants:
        own: dict[str, Any] = {"method": variant.partition(",")[0]}
        if variant in PRIORS:
            own["class_prior"] = tuple(PRIORS[variant](start).tolist())
        if variant == "ancon":
            own |= {name: plan["adapt"][name] for name in OF_ANCON}
        run = adapt(
            source,
            domain,
            labels=domain.labels.tolist(),
            seed=setting.seed,
            workers=0,
            cache=str(out / "cache"),
            quiet=True,
            log=str(out / f"{setting.pair}-{setting.kind}" / f"{variant.replace(', ', '-')}-seed{setting.seed}"),
            **common | own,
        )
        yield Result(setting, variant, *(run.summary[part]["accuracy"] for part in ("start", "selected")))


def table(results: Sequence[Result], kinds: Sequence[str], base: str = BASE) -> str:
    """A row a variant, a column a kind: mean, difference to the variant ``base`` and worst difference to the start."""
    lines = ["| | " + " | ".join(kinds) + " |", "|---|" + "---:|" * len(kinds)]
    starts = {one.setting: one.start for one in results}
    lines.append(
        "| start | " + " | ".join(_mean([starts[one] for one in starts if one.kind == kind]) for kind in kinds) + " |"
    )
    for variant in dict.fromkeys(one.variant for one in results):
        own = [one for one in results if one.variant == variant]
        cells = [_cell([one for one in own if one.setting.kind == kind], results, base) for kind in kinds]
        lines.append(f"| {variant} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _mean(values: Sequence[float]) -> str:
    return f"{fmean(values):.1f} ({len(values)})"


def _cell(own: Sequence[Result], results: Sequence[Result], base: str) -> str:
    if not own:
        return ""
    beside = {one.setting: one.selected for one in results if one.variant == base}
    differences = [one.selected - beside[one.setting] for one in own if one.setting in beside]
    error = f" ± {stdev(differences) / math.sqrt(len(differences)):.1f}" if len(differences) > 1 else ""
    difference = f", {fmean(differences):+.1f}{error}" if differences and own[0].variant != base else ""
    worst = min(one.selected - one.start for one in own)
    return f"{fmean(one.selected for one in own):.1f}{difference}, worst {worst:+.1f}"


if __name__ == "__main__":
    main()
