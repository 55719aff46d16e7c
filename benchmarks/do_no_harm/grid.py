"""The demo's digits as a grid of stored candidates for the second round: five targets, seven ways to adapt.

    python -m benchmarks.do_no_harm.grid OUT [--seeds 0 1 2] [--epochs 8]
    python -m benchmarks.do_no_harm.round2 OUT/runs
    python -m benchmarks.certification --runs OUT/runs

The source models are the demo's; the targets are those of :mod:`benchmarks.do_no_harm.options`, as image lists. Every
run keeps the models and logits of all epochs, and :mod:`benchmarks.do_no_harm.candidates` adds AdaBN, interpolations
with the start and what the criteria need. The same command continues what was interrupted. Prints Markdown as
:mod:`benchmarks.do_no_harm.classes` does, the differences to ``ancon-auto, uniform``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.do_no_harm.candidates import store
from benchmarks.do_no_harm.classes import Result, Setting, table
from benchmarks.do_no_harm.lists import Sample, write
from benchmarks.do_no_harm.options import TARGETS, Target, of_all
from tllib_ancon import adapt
from tllib_ancon.data.demo import write_demo_domains
from tllib_ancon.paper.demo import Demo
from tllib_ancon.training.pretrain import pretrain

UNIFORM = {"method": "ancon-auto", "class_prior": "uniform"}
WAYS: Mapping[str, Mapping[str, Any]] = {
    "self-training": {"method": "self-training"},
    "elr": {"method": "elr"},
    "ancon": {"method": "ancon"},
    "ancon-auto": {"method": "ancon-auto"},
    "ancon-auto, uniform": UNIFORM,
    "ancon-auto, uniform, source statistics": {**UNIFORM, "batch_norm": "source"},
    "ancon-auto, uniform, mixed statistics": {**UNIFORM, "batch_norm": "mixed"},
}
ALPHAS = (0.25, 0.5, 0.75)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.do_no_harm.grid",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=8, help="of an adaptation (default: 8)")
    args = parser.parse_args(words)
    demo = Demo(args.out, tuple(args.seeds), source_epochs=10, epochs=args.epochs, jobs=1)
    write_demo_domains(args.out / "data")
    results = []
    for seed in args.seeds:
        pretrain(demo.source(seed))
        for target in TARGETS:
            for way, settings in WAYS.items():
                run, summary = made(demo, seed, target, way, settings)
                store(run, ALPHAS, batch_size=64, workers=0)
                accuracies = (summary[part]["accuracy"] for part in ("start", "selected"))
                results.append(Result(Setting("digits", target.name, seed), way, *accuracies))
    print(table(results, [target.name for target in TARGETS]), flush=True)
    return 0


def made(
    demo: Demo, seed: int, target: Target, way: str, settings: Mapping[str, Any]
) -> tuple[Path, Mapping[str, Any]]:
    """The directory of a run, which is made if it is not finished, and its result."""
    setting = _slug(target.name)
    run, lists = demo.out / "runs" / setting / f"{_slug(way)}-seed{seed}", demo.out / "lists" / f"{setting}-seed{seed}"
    domain = target.domain(str(demo.out / "data"), seed)
    assert domain.labels is not None
    assert domain.paths is not None
    write(lists, {"target": [Sample(*one) for one in zip(domain.paths, domain.labels.tolist(), strict=True)]})
    classes = "".join(f"{name}\n" for name in domain.classes)
    (lists / "image_list" / "classes.txt").write_text(classes, encoding="utf-8")
    adapted = adapt(
        str(demo.directory("source", seed).path),
        root=str(lists),
        data="ImageList",
        target=["target"],
        allow_outside_root=True,
        save_epochs=True,
        save_logits=True,
        log=str(run),
        **of_all(demo, seed, target, len(domain)),
        **settings,
    )
    return run, adapted.summary


def _slug(name: str) -> str:
    return name.replace(", ", "-").replace(" ", "-")


if __name__ == "__main__":
    sys.exit(main())
