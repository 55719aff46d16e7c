"""The demo's digits as a grid of stored candidates for the second round: five targets, seven ways to adapt.

    python -m benchmarks.do_no_harm.grid OUT [--seeds 0 1 2] [--epochs 8]
    python -m benchmarks.do_no_harm.round2 OUT/runs
    python -m benchmarks.certification --runs OUT/runs
    python -m benchmarks.do_no_harm.grid OUT --options [NAME …] [--methods ancon-auto] [--epochs 12]

The source models are the demo's; the targets are its digits, a long tail of them, four classes alone, and images
without a shift. Every run keeps the models and logits of all epochs, and :mod:`benchmarks.do_no_harm.candidates` adds
AdaBN, interpolations with the start and what the criteria need. The same command continues what was interrupted. Prints
Markdown: a row a way, a column a target, the mean accuracy in percent, the paired difference to ``ancon-auto, uniform``
with its standard error, and the worst difference to the start; with ``--options`` instead what each option of caution
changes (by default all), the differences to the option "default".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.do_no_harm import lists, parser, run
from benchmarks.do_no_harm.candidates import store
from benchmarks.tables import markdown
from tllib_ancon import adapt
from tllib_ancon.data.demo import CROP, SOURCE, TARGET, write_demo_domains
from tllib_ancon.data.loading import hold_out
from tllib_ancon.paper.demo import Demo
from tllib_ancon.training.pretrain import pretrain

UNIFORM = {"method": "ancon-auto", "class_prior": "uniform"}
BASE = "ancon-auto, uniform"
WAYS: Mapping[str, Mapping[str, Any]] = {
    "self-training": {"method": "self-training"},
    "elr": {"method": "elr"},
    "ancon": {"method": "ancon"},
    "ancon-auto": {"method": "ancon-auto"},
    BASE: UNIFORM,
    f"{BASE}, source statistics": {**UNIFORM, "batch_norm": "source"},
    f"{BASE}, mixed statistics": {**UNIFORM, "batch_norm": "mixed"},
}
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
ALPHAS = (0.25, 0.5, 0.75)
FULL_RATE = "handwritten, full rate"
TARGETS = ("handwritten", FULL_RATE, "long tail", "few classes", "no shift")
TAIL, FEW_CLASSES = 20, 4


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("out", type=Path, metavar="OUT")
    arguments.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments.add_argument("--epochs", type=int, help="of an adaptation (default: 8; of an option 12)")
    arguments.add_argument("--options", nargs="*", choices=OPTIONS, metavar="NAME", help="instead: these, or all")
    arguments.add_argument("--methods", nargs="+", default=["ancon-auto"], help="whose options (default: ancon-auto)")
    args = arguments.parse_args(words)
    if args.options is None:
        ways = {way: {**settings, "save_epochs": True, "save_logits": True} for way, settings in WAYS.items()}
        made = results(args.out, "runs", args.seeds, args.epochs or 8, ways, partial(store, alphas=ALPHAS))
        print(table(made, BASE), flush=True)
        return
    for method in args.methods:
        ways = {
            name: {"method": method, **OPTIONS[name]} for name in dict.fromkeys(["default", *(args.options or OPTIONS)])
        }
        made = results(args.out, f"options/{method}", args.seeds, args.epochs or 12, ways)
        print(f"## {method}, {len(args.seeds)} seeds\n\n{table(made, 'default')}", flush=True)


def results(
    out: Path,
    folder: str,
    seeds: Sequence[int],
    epochs: int,
    ways: Mapping[str, Mapping[str, Any]],
    then: Callable[[Path], None] = lambda adaptation: None,
) -> pd.DataFrame:
    """Accuracies of every way to adapt to every target; runs that are not finished are made.

    Args:
        out: folder of the demo's data, of source models and, in ``folder``, of the runs
        ways: name -> settings
        then: called with the directory of each run
    """
    demo = Demo(out, tuple(seeds), source_epochs=10, epochs=epochs, jobs=1)
    write_demo_domains(out / "data")
    rows = []
    for seed, training in zip(seeds, demo.runs(), strict=False):  # source models come first
        source = training.config
        pretrain(source)
        for target in TARGETS:
            images = of_target(out / "data", target, seed)
            listed = out / "lists" / f"{_slug(target)}-seed{seed}"
            lists.write(listed, {"target": images})
            (listed / "image_list" / "classes.txt").write_text("".join(f"{digit}\n" for digit in range(10)))
            for way, settings in ways.items():
                log = out / folder / _slug(target) / f"{_slug(way)}-seed{seed}"
                common = of_all(seed, epochs, len(images), full_rate=target == FULL_RATE)
                adapted = adapt(str(source.log), root=str(listed), log=str(log), **{**common, **settings})
                then(log)
                rows.append(result("digits", target, seed, way, adapted.summary))
    return pd.DataFrame(rows)


def of_target(root: Path, target: str, seed: int) -> pd.DataFrame:
    """The images that are adapted to."""
    images = lists.read(root / "image_list" / f"{SOURCE if target == 'no shift' else TARGET}.txt", root)
    if target == "no shift":
        return images.iloc[hold_out(len(images), 0.1, seed)[1].tolist()]
    if target == "long tail":
        kept = np.random.default_rng(0).random(len(images)) < (TAIL ** -(np.arange(10) / 9))[images.label]
        return images[kept]
    return images[images.label < FEW_CLASSES] if target == "few classes" else images


def of_all(seed: int, epochs: int, images: int, full_rate: bool) -> dict[str, Any]:
    """The settings that all adaptations to a target of so many images share."""
    return {
        "data": "ImageList",
        "target": ["target"],
        "allow_outside_root": True,
        "seed": seed,
        "epochs": epochs,
        "batch_size": 64 if images > 500 else 32,
        "criterion": "infomax",
        "scratch": full_rate,
        "image_size": CROP,
        "scale": (0.5, 1.0),
        "no_hflip": True,
        "threads": 1,
        "workers": 0,
        "device_augmentation": True,
        "quiet": True,
    }


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


def _slug(name: str) -> str:
    return name.replace(", ", "-").replace(" ", "-")


if __name__ == "__main__":
    run(main)
