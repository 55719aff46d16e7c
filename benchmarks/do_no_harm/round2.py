"""Which label-free criterion takes a good model? A round over logits that runs have stored.

    python -m benchmarks.do_no_harm.round2 RUNS ... [--csv FILE]

RUNS hold run directories ``.../SETTING/METHOD-seedN`` made with ``save_logits``, which have ``logits/epoch-000.npz``
(the start) and those of the adapted epochs, and perhaps of further candidates (``adabn``, ``mixed-0.25``, …; see
:mod:`benchmarks.do_no_harm.candidates`). Labels are used to judge the choices and, of the other settings, to fit a
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

import math
import re
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from benchmarks.do_no_harm import parser, run
from benchmarks.do_no_harm.criteria import ALL, Candidate, Criterion
from benchmarks.tables import markdown
from tllib_ancon.errors import UserError

START = "epoch-000"
HARM = 0.5
"""Points of accuracy below the start that count as harm."""

POOL = ["setting", "pool"]


class Pool(NamedTuple):
    """Models for the same images among which one is chosen: the start, the epochs of a run in their order, others."""

    setting: str
    name: str
    candidates: dict[str, Candidate]
    one_run: bool


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("runs", nargs="+", type=Path, metavar="RUNS", help="folders that hold run directories")
    arguments.add_argument("--csv", type=Path, metavar="FILE", help="write what every choice took")
    args = arguments.parse_args(words)
    runs = [pool for folder in args.runs for pool in read(folder)]
    taken = []
    titles = {"run": "Among the candidates of a run", "setting": "Among those of all methods"}
    for (among, title), pools in zip(titles.items(), (runs, joined(runs)), strict=True):
        if not pools:
            print(f"## {title}\n\nNo setting and seed has runs of several methods.")
            continue
        measured = scored(pools)
        made = choices(measured)
        print(f"## {title}\n\n{table(measured, made)}")
        taken.append(made.assign(among=among))
    if args.csv:
        columns = ["among", *POOL, "choice", "chosen", "accuracy", "start", "best"]
        pd.concat(taken)[columns].to_csv(args.csv, index=False, float_format="%.2f")


def read(folder: Path) -> list[Pool]:
    """A pool for each run directory below the folder that kept logits.

    Raises:
        UserError: there is none, a run without its start, or a target without labels
    """
    pools = []
    for path in sorted(path for path in folder.rglob("logits") if path.is_dir()):
        candidates = stored(path.parent)
        if START not in candidates:
            raise UserError(f"{path} does not hold {START}, the start: make that run with `save_logits=True`")
        unlabelled = [name for name, one in candidates.items() if "labels" not in one]
        if unlabelled:
            raise UserError(f"{path / unlabelled[0]}.npz has no labels: its choices cannot be judged")
        pools.append(Pool(path.parents[1].name, path.parent.name, candidates, one_run=True))
    if not pools:
        raise UserError(f"{folder} holds no logits of epochs; make runs with `save_logits=True`")
    return pools


def stored(run: Path) -> dict[str, Candidate]:
    """What a run keeps in ``logits/``, the epochs in their order and then the others."""
    paths = sorted((run / "logits").glob("*.npz"), key=lambda path: (not path.stem.startswith("epoch-"), path.stem))
    candidates = {}
    for path in paths:
        with np.load(path, allow_pickle=False) as arrays:
            candidates[path.stem] = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return candidates


def joined(runs: Iterable[Pool]) -> list[Pool]:
    """One pool of the candidates of all methods for each setting and seed where there are several.

    Raises:
        UserError: runs of one setting and seed that start from different models
    """

    def key(pool: Pool) -> tuple[str, str]:
        return pool.setting, re.sub(r".+-seed(?=\d+$)", "", pool.name)

    pools = []
    for (setting, seed), group in groupby(sorted(runs, key=key), key):
        first, *others = group
        start = first.candidates[START]["logits"]
        for other in others:
            if not _near(start, other.candidates[START]["logits"]):
                raise UserError(f"{setting}: {first.name} and {other.name} start from different models or images")
        adapted = {
            f"{pool.name}/{name}": one
            for pool in (first, *others)
            for name, one in pool.candidates.items()
            if name != START
        }
        if others:
            pools.append(Pool(setting, f"seed {seed}", {START: first.candidates[START], **adapted}, one_run=False))
    return pools


def _near(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-3, atol=1e-3)


def scored(pools: Iterable[Pool]) -> pd.DataFrame:
    """A row a candidate: its pool, place there, name and accuracy, and its score by every criterion, NaN where what is
    stored does not allow one; negated where lower is better."""
    rows = []
    for pool in pools:
        scores = {name: _scores(pool, one) * (1 if one.higher_is_better else -1) for name, one in ALL.items()}
        rows += [
            {
                "setting": pool.setting,
                "pool": pool.name,
                "place": place,
                "candidate": name,
                "accuracy": 100 * float((one["logits"].argmax(1) == one["labels"]).double().mean()),
                **{criterion: values[place] for criterion, values in scores.items()},
            }
            for place, (name, one) in enumerate(pool.candidates.items())
        ]
    return pd.DataFrame(rows)


def _scores(pool: Pool, criterion: Criterion) -> np.ndarray:
    if not criterion.of_epochs:
        return np.array(criterion.scores(list(pool.candidates.values())))
    epochs = [name.startswith("epoch-") and pool.one_run for name in pool.candidates]
    scores = np.full(len(epochs), math.nan)
    if any(epochs):
        scores[epochs] = criterion.scores(
            [one for one, kept in zip(pool.candidates.values(), epochs, strict=True) if kept]
        )
    return scores


def choices(measured: pd.DataFrame) -> pd.DataFrame:
    """A row for each choice and pool that allows it: the chosen candidate, its accuracy, the start's and the best."""
    starts = measured[measured.place == 0]
    made = {"start": starts, "best (labels)": _best(measured, "accuracy")}
    for name in ALL:
        made[name] = _best(measured[measured.place > 0], name)
        if name != "last":
            allowed = pd.MultiIndex.from_frame(measured[POOL]).isin(made[name].set_index(POOL).index)
            made[f"{name} or start"] = _best(measured[allowed], name)
            if made[name].setting.nunique() > 1:
                made[f"{name}, guarded"] = guarded(made[name], starts, name)
    taken = pd.concat(made, names=["choice"]).reset_index("choice").rename(columns={"candidate": "chosen"})
    return taken.join(measured.groupby(POOL).accuracy.agg(start="first", best="max"), on=POOL)


def _best(measured: pd.DataFrame, score: str) -> pd.DataFrame:
    """The first candidate with the best score of each pool; NaN never wins."""
    return measured.loc[measured.dropna(subset=score).groupby(POOL)[score].idxmax()]


def guarded(adapted: pd.DataFrame, starts: pd.DataFrame, score: str) -> pd.DataFrame:
    """The same choices, but the start where the score does not improve by more than the threshold that is best on all
    other settings.

    Args:
        adapted, starts: of each pool the chosen candidate and the start
    """
    both = adapted.merge(starts, on=POOL, suffixes=("", " of start"))
    both["gain"] = both[score] - both[f"{score} of start"]
    settings = both.setting.unique()
    thresholds = {setting: threshold(both[both.setting != setting]) for setting in settings}
    trusted = both.gain > both.setting.map(thresholds)
    kept = starts.merge(both[~trusted][POOL], on=POOL)
    return pd.concat([both[trusted][adapted.columns], kept])


def threshold(measured: pd.DataFrame) -> float:
    """The gain above which to trust a choice, for the largest mean accuracy; of several, the most cautious."""
    gains = sorted({gain for gain in measured.gain if math.isfinite(gain)})
    limits = (-math.inf, *((low + high) / 2 for low, high in pairwise(gains)), math.inf)

    def accuracy(limit: float) -> float:
        taken = measured.accuracy.where(measured.gain > limit, measured["accuracy of start"])
        return _over_settings(taken, measured.setting)

    return max(limits, key=lambda limit: (accuracy(limit), limit))


def _over_settings(values: pd.Series, settings: pd.Series) -> float:
    """Mean over settings of the mean within a setting."""
    return float(values.groupby(settings).mean().mean())


def table(measured: pd.DataFrame, taken: pd.DataFrame) -> str:
    """A row for each choice, and what could not be judged."""
    sizes = measured.groupby("setting").size()
    number = len(measured.groupby(POOL))
    listed = ", ".join(f"{setting} {size}" for setting, size in sizes.items())
    rows = []
    for choice, own in taken.groupby("choice", sort=False):
        drops = own.accuracy - own.start
        mean, regret = (_over_settings(values, own.setting) for values in (own.accuracy, own.best - own.accuracy))
        harm = 100 * (drops < -HARM).mean()
        rows.append((choice, len(own), f"{mean:.2f}", f"{drops.min():+.1f}", f"{harm:.0f} %", f"{regret:.2f}"))
    judged = markdown(("choice", "pools", "mean", "worst", "harm", "regret"), rows, numbers=True)
    missing = [f"{name} (needs {criterion.needs})" for name, criterion in ALL.items() if name not in {*taken.choice}]
    left = f"\nNot judged, for it was not stored or has no meaning here: {'; '.join(missing)}.\n" if missing else ""
    return f"pools: {number}; candidates: {listed}\n\n{judged}{left}"


if __name__ == "__main__":
    run(main)
