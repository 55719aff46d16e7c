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

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from benchmarks.do_no_harm import parser, run
from benchmarks.tables import markdown
from tllib_ancon import adapt, predict
from tllib_ancon.config import read_file
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.loading import hold_out
from tllib_ancon.data.open import open_domain
from tllib_ancon.self_training.adaptive import estimate_class_prior, likeliest_class_prior

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


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("root", metavar="OFFICE31")
    arguments.add_argument("runs", type=Path, metavar="RUNS")
    arguments.add_argument("out", type=Path, metavar="OUT")
    arguments.add_argument("--pairs", nargs="+", choices=PAIRS, default=PAIRS, help="of the kinds with a shift")
    arguments.add_argument("--kinds", nargs="+", default=("long-tail", "few-classes", "no-shift", "balanced"))
    arguments.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    arguments.add_argument("--seeds", nargs="+", type=int, default=[0])
    args = arguments.parse_args(words)
    results = [
        result
        for seed in args.seeds
        for kind in args.kinds
        for pair in (DOMAINS if kind == "no-shift" else args.pairs)
        for result in made(args.root, args.runs, args.out, Setting(pair, kind, seed), args.variants)
    ]
    print(table(pd.DataFrame(results), BASE), flush=True)


def made(root: str, runs: Path, out: Path, setting: Setting, variants: Sequence[str]) -> Iterator[dict[str, Any]]:
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
        adapted = adapt(
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
        yield result(setting.pair, setting.kind, setting.seed, variant, adapted.summary)


def result(pair: str, kind: str, seed: int, variant: str, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Accuracies of one run, in percent."""
    accuracies = {part: summary[part]["accuracy"] for part in ("start", "selected")}
    return {"pair": pair, "kind": kind, "seed": seed, "variant": variant, **accuracies}


def table(results: pd.DataFrame, base: str) -> str:
    """A row a variant, a column a kind: mean, difference to the variant ``base`` and worst difference to the start."""
    setting = ["pair", "kind", "seed"]
    beside = results[results.variant == base].set_index(setting).selected
    results = results.join(beside.rename("beside"), on=setting)
    kinds, starts = results.kind.unique(), results.drop_duplicates(setting).groupby("kind").start
    rows = [
        (variant, *(_cell(results[(results.variant == variant) & (results.kind == kind)], base) for kind in kinds))
        for variant in results.variant.unique()
    ]
    first = ("start", *(f"{starts.mean()[kind]:.1f} ({starts.size()[kind]})" for kind in kinds))
    return markdown(["", *kinds], [first, *rows], numbers=True)


def _cell(own: pd.DataFrame, base: str) -> str:
    if own.empty:
        return ""
    differences = (own.selected - own.beside).dropna()
    error = f" ± {differences.sem():.1f}" if len(differences) > 1 else ""
    is_base = own.variant.iloc[0] == base
    difference = "" if is_base or differences.empty else f", {differences.mean():+.1f}{error}"
    return f"{own.selected.mean():.1f}{difference}, worst {(own.selected - own.start).min():+.1f}"


if __name__ == "__main__":
    run(main)
