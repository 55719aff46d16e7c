"""Which label-free criterion takes a good model? A round over logits that runs have stored.

    python -m benchmarks.do_no_harm.round2 RUNS ... [--csv FILE]

RUNS hold run directories ``.../SETTING/METHOD-seedN`` made with ``save_logits``, which have ``logits/epoch-000.npz``
(the start) and those of the adapted epochs, and perhaps of further candidates (``adabn``, ``mixed-0.25``, …; see
:mod:`tllib_ancon.training.saved_logits`). Labels are used to judge the choices and, of the other settings, to fit a
threshold; no criterion sees them.

Two kinds of pools are judged: the candidates of each run, and those of all methods of a setting and seed together. For
each choice the tables say, in percent and points of accuracy:

- mean: of the chosen models, first over the pools of a setting, then over settings
- worst: the chosen model minus its start, in the worst pool
- harm: share of the pools in which the chosen model is more than 0.5 below its start
- regret: the best model of the pool minus the chosen one, mean as above

``NAME`` chooses among the adapted candidates, ``NAME or start`` lets the start compete, and ``NAME, guarded`` returns
to the start unless the score improves by more than a threshold, which maximises the mean accuracy of all settings but
the one it is used on.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
import torch

from tllib_ancon.errors import UserError
from tllib_ancon.selection import CRITERIA, NEEDS, POOL_CRITERIA, Criterion, Mixtures, Outputs, PoolCriterion
from tllib_ancon.training.saved_logits import FOLDER, SavedLogits, read_logits

START = "epoch-000"
RUN = re.compile(r"(?P<method>.+)-seed(?P<seed>\d+)")
HARM = 0.5
"""Points of accuracy below the start that count as harm."""

ALL: Mapping[str, Criterion | PoolCriterion] = {**CRITERIA, **POOL_CRITERIA}
IN_ORDER = ("nothing", "sequence")
"""Needs of criteria that only the epochs of one run satisfy."""


@dataclass(frozen=True)
class Candidate:
    """A stored model: what it says, and how good it is."""

    name: str
    outputs: Outputs
    accuracy: float


@dataclass(frozen=True)
class Pool:
    """Models for the same images among which one is chosen; the start is the first.

    Attributes:
        setting: domains that the models are adapted from and to
        name: of the run, or of the seed
        candidates: the start, the epochs of a run in their order, and others
        one_run: whether they are all of one run
        scores: criterion -> a score for each candidate, NaN where it has none
    """

    setting: str
    name: str
    candidates: Sequence[Candidate]
    one_run: bool
    scores: dict[str, list[float]] = field(default_factory=dict)

    @property
    def start(self) -> float:
        return self.candidates[0].accuracy

    @property
    def best(self) -> float:
        return max(candidate.accuracy for candidate in self.candidates)


@dataclass(frozen=True)
class Outcome:
    """What a choice took from a pool."""

    pool: Pool
    chosen: Candidate


Choice = Mapping[str, Sequence[Outcome]]
"""Name of a choice -> what it took from each pool."""


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.do_no_harm.round2",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUNS", help="folders that hold run directories")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write what every choice took")
    args = parser.parse_args(words)
    try:
        runs = [pool for folder in args.runs for pool in read(folder)]
        kinds = {"run": runs, "setting": joined(runs)}
        outcomes = {kind: choices(scored(pools)) for kind, pools in kinds.items()}
    except UserError as error:
        print(f"round2: error: {error}", file=sys.stderr)
        return 2
    for kind, title in (("run", "Among the candidates of a run"), ("setting", "Among those of all methods")):
        print(f"## {title}\n\n{table(kinds[kind], outcomes[kind])}\n")
    if args.csv:
        write_csv(args.csv, outcomes)
    return 0


def read(folder: Path) -> list[Pool]:
    """A pool for each run directory below the folder that kept logits.

    Raises:
        UserError: there is none, a damaged file, a run without its start, or a target without labels
    """
    pools = []
    for path in sorted({logits.parent for logits in folder.rglob(FOLDER) if logits.is_dir()}):
        saved = read_logits(path)
        if START not in saved:
            raise UserError(f"{path / FOLDER} does not hold {START}, the start: make that run with `save_logits=True`")
        candidates = [_candidate(path, name, one) for name, one in saved.items()]
        pools.append(Pool(path.parent.name, path.name, candidates, one_run=True))
    if not pools:
        raise UserError(f"{folder} holds no logits of epochs; make runs with `save_logits=True`")
    return pools


def _candidate(run: Path, name: str, saved: SavedLogits) -> Candidate:
    if saved.labels is None:
        raise UserError(f"{run / FOLDER / name}.npz has no labels: its choices cannot be judged")
    mixtures = None
    if saved.mixed is not None and saved.first is not None and saved.second is not None:
        mixtures = Mixtures(*(torch.from_numpy(array) for array in (saved.mixed, saved.first, saved.second)))
    dropout = None if saved.dropout is None else torch.from_numpy(saved.dropout)
    outputs = Outputs(torch.from_numpy(saved.logits), dropout, mixtures)
    return Candidate(name, outputs, 100 * float((saved.logits.argmax(1) == saved.labels).mean()))


def joined(runs: Iterable[Pool]) -> list[Pool]:
    """One pool of the candidates of all methods for each setting and seed where there are several.

    Raises:
        UserError: runs of one setting and seed that start from different models
    """
    groups: dict[tuple[str, str], list[Pool]] = {}
    for run in runs:
        found = RUN.fullmatch(run.name)
        groups.setdefault((run.setting, found["seed"] if found else run.name), []).append(run)
    pools = []
    for (setting, seed), group in groups.items():
        start = group[0].candidates[0]
        for run in group[1:]:
            if not _same(start, run.candidates[0]):
                raise UserError(f"{setting}: {group[0].name} and {run.name} start from different models or images")
        if len(group) > 1:
            others = [
                Candidate(f"{run.name}/{one.name}", one.outputs, one.accuracy)
                for run in group
                for one in run.candidates[1:]
            ]
            pools.append(Pool(setting, f"seed {seed}", [start, *others], one_run=False))
    return pools


def _same(one: Candidate, other: Candidate) -> bool:
    return one.outputs.logits.shape == other.outputs.logits.shape and bool(
        np.allclose(one.outputs.logits, other.outputs.logits, rtol=1e-3, atol=1e-3)
    )


def scored(pools: Sequence[Pool]) -> Sequence[Pool]:
    """The pools, each with the scores of every criterion that its stored outputs allow."""
    for pool in pools:
        for name, criterion in ALL.items():
            if criterion.needs in IN_ORDER:
                pool.scores[name] = _scores_in_order(pool, criterion)
            else:
                pool.scores[name] = criterion.scores([one.outputs for one in pool.candidates])
    return pools


def _scores_in_order(pool: Pool, criterion: Criterion | PoolCriterion) -> list[float]:
    """Scores of the epochs of one run; candidates that are no epochs have none."""
    if not pool.one_run:
        return [math.nan] * len(pool.candidates)
    epochs = [number for number, one in enumerate(pool.candidates) if one.name.startswith("epoch-")]
    scores = dict(zip(epochs, criterion.scores([pool.candidates[number].outputs for number in epochs]), strict=True))
    return [scores.get(number, math.nan) for number in range(len(pool.candidates))]


def choices(pools: Sequence[Pool]) -> Choice:
    """What the start, the oracle and each criterion take, as far as the pools allow."""
    made: dict[str, list[Outcome]] = {
        "start": [Outcome(pool, pool.candidates[0]) for pool in pools],
        "best (labels)": [Outcome(pool, max(pool.candidates, key=lambda one: one.accuracy)) for pool in pools],
    }
    for name, criterion in ALL.items():
        possible = [pool for pool in pools if any(map(math.isfinite, pool.scores[name][1:]))]
        if not possible:
            continue
        sign = 1.0 if criterion.higher_is_better else -1.0
        adapted = {id(pool): best(pool.scores[name], sign, first=1) for pool in possible}
        made[name] = [Outcome(pool, pool.candidates[adapted[id(pool)]]) for pool in possible]
        if criterion.needs != "nothing":
            made[f"{name} or start"] = [
                Outcome(pool, pool.candidates[best(pool.scores[name], sign, first=0)]) for pool in possible
            ]
            if len({pool.setting for pool in possible}) > 1:
                made[f"{name}, guarded"] = guarded(made[name], lambda pool, at: sign * _gain(pool, name, at))  # noqa: B023
    return made


def best(scores: Sequence[float], sign: float, first: int) -> int:
    """The first candidate from ``first`` on with the best score; NaN never wins."""
    candidates = [number for number in range(first, len(scores)) if not math.isnan(scores[number])]
    return max(candidates, key=lambda number: sign * scores[number])


def _gain(pool: Pool, criterion: str, at: int) -> float:
    return pool.scores[criterion][at] - pool.scores[criterion][0]


def guarded(outcomes: Sequence[Outcome], gain: Callable[[Pool, int], float]) -> list[Outcome]:
    """The same choices, but the start where the gain is not above the threshold that is best on all other settings.

    Args:
        outcomes: of several settings
        gain: of a pool and the position of its chosen candidate; the higher, the more it is trusted
    """
    gains = [gain(one.pool, one.pool.candidates.index(one.chosen)) for one in outcomes]
    settings = {one.pool.setting for one in outcomes}
    thresholds = {
        setting: threshold(
            [(one, own) for one, own in zip(outcomes, gains, strict=True) if one.pool.setting != setting]
        )
        for setting in settings
    }
    return [
        one if own > thresholds[one.pool.setting] else Outcome(one.pool, one.pool.candidates[0])
        for one, own in zip(outcomes, gains, strict=True)
    ]


def threshold(measured: Sequence[tuple[Outcome, float]]) -> float:
    """The gain above which to trust a choice, for the largest mean accuracy; of several, the most cautious."""
    gains = sorted({gain for _, gain in measured if math.isfinite(gain)})
    between = [(low + high) / 2 for low, high in pairwise(gains)]

    def accuracy(limit: float) -> float:
        return _over_settings(
            [(one.pool.setting, one.chosen.accuracy if gain > limit else one.pool.start) for one, gain in measured]
        )

    return max((-math.inf, *between, math.inf), key=lambda limit: (accuracy(limit), limit))


def _over_settings(values: Iterable[tuple[str, float]]) -> float:
    """Mean over settings of the mean within a setting."""
    by_setting: dict[str, list[float]] = {}
    for setting, value in values:
        by_setting.setdefault(setting, []).append(value)
    return fmean(map(fmean, by_setting.values()))


@dataclass(frozen=True)
class Verdict:
    """How good a choice is; see the head of this file."""

    pools: int
    mean: float
    worst: float
    harm: float
    regret: float


def judge(outcomes: Sequence[Outcome]) -> Verdict:
    drops = [one.chosen.accuracy - one.pool.start for one in outcomes]
    return Verdict(
        len(outcomes),
        _over_settings((one.pool.setting, one.chosen.accuracy) for one in outcomes),
        min(drops),
        100 * fmean(drop < -HARM for drop in drops),
        _over_settings((one.pool.setting, one.pool.best - one.chosen.accuracy) for one in outcomes),
    )


def table(pools: Sequence[Pool], made: Choice) -> str:
    """A row a choice, and what could not be judged."""
    if not pools:
        return "No setting and seed has runs of several methods."
    settings = sorted({pool.setting for pool in pools})
    sizes = {setting: sum(len(pool.candidates) for pool in pools if pool.setting == setting) for setting in settings}
    listed = ", ".join(f"{setting} {size}" for setting, size in sizes.items())
    lines = [
        f"{_counted(len(pools), 'pool')} of {_counted(len(settings), 'setting')}; candidates: {listed}",
        "",
        "| choice | pools | mean | worst | harm | regret |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, outcomes in made.items():
        found = judge(outcomes)
        lines.append(
            f"| {name} | {found.pools} | {found.mean:.2f} | {found.worst:+.1f} | {found.harm:.0f} % "
            f"| {found.regret:.2f} |"
        )
    missing = [f"{name} (needs {NEEDS[criterion.needs]})" for name, criterion in ALL.items() if name not in made]
    if missing:
        lines += ["", f"Not judged, for it was not stored or has no meaning here: {'; '.join(missing)}."]
    return "\n".join(lines)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def write_csv(path: Path, outcomes: Mapping[str, Choice]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("among", "setting", "pool", "choice", "chosen", "accuracy", "start", "best"))
        for kind, made in outcomes.items():
            for choice, taken in made.items():
                for one in taken:
                    numbers = (one.chosen.accuracy, one.pool.start, one.pool.best)
                    names = (kind, one.pool.setting, one.pool.name, choice, one.chosen.name)
                    writer.writerow((*names, *(f"{number:.2f}" for number in numbers)))


if __name__ == "__main__":
    sys.exit(main())
