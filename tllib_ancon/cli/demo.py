"""``tllib-ancon demo``: what AnCon gains, on data that ships with its dependencies."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

SOURCE_ONLY = "source-only"
METHODS = ("self-training", "elr", "ancon")
THREADS = 2
"""Their number decides numbers, and so the table."""
MARK = "overwriting.json"
"""In the demo's folder while a command with ``--overwrite`` has not finished."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", default="ancon-demo", metavar="DIR", help="folder for data, runs and results")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="a source model and three runs each")
    parser.add_argument("--source-epochs", type=int, default=10, help="of each source model")
    parser.add_argument("--epochs", type=int, default=20, help="of each adaptation")
    parser.add_argument("-j", "--workers", type=int, default=2, metavar="N", help="processes that load images")
    parser.add_argument("--overwrite", action="store_true", help="start every run anew")
    parser.add_argument("--quiet", action="store_true", help="show the table only")


def run(args: argparse.Namespace) -> int:
    from tllib_ancon.data.demo import write_demo_domains
    from tllib_ancon.report.curves import draw_curves

    started = time.perf_counter()
    out = Path(args.out)
    if args.overwrite:
        _clear(args, out / MARK)
    write_demo_domains(out / "data")
    results: dict[str, list[Mapping[str, Any]]] = {method: [] for method in METHODS}
    for seed in args.seeds:
        for method, result in _run_seed(args, seed).items():
            results[method].append(result)
    summary = summarize(results)
    seconds = round(time.perf_counter() - started, 1)
    (out / "summary.json").write_text(json.dumps({**summary, "seconds": seconds}, indent=2) + "\n")
    metrics = {method: [_directory(args, method, seed).metrics() for seed in args.seeds] for method in METHODS}
    draw_curves(metrics, out / "curves.png")
    (out / MARK).unlink(missing_ok=True)
    print(table(summary, args.seeds))
    print(f"{seconds:.0f} s; numbers in {out / 'summary.json'}, curves in {out / 'curves.png'}")
    return 0


def _run_seed(args: argparse.Namespace, seed: int) -> dict[str, Mapping[str, Any]]:
    """The source model of one seed and its adaptations."""
    from tllib_ancon.config import AdaptConfig, PretrainConfig
    from tllib_ancon.data.demo import CROP, SOURCE, TARGET
    from tllib_ancon.training.adapt import adapt
    from tllib_ancon.training.pretrain import pretrain

    source = _directory(args, "source", seed)
    common = {
        "root": str(Path(args.out) / "data"),
        "data": "ImageList",
        "source": (SOURCE,),
        "arch": "small_cnn",
        "image_size": CROP,
        "scale": (0.5, 1.0),
        "no_hflip": True,
        "seed": seed,
        "workers": args.workers,
        "quiet": args.quiet,
        "threads": THREADS,
    }
    pretrain(PretrainConfig(**common, scratch=True, epochs=args.source_epochs, log=str(source.path)))
    start = {"target": (TARGET,), "checkpoint": str(source.checkpoints / "best.pth"), "epochs": args.epochs}
    results = {}
    for method in METHODS:
        log = str(_directory(args, method, seed).path)
        results[method] = adapt(config=AdaptConfig(**common, **start, method=method, log=log)).summary
    return results


def _clear(args: argparse.Namespace, mark: Path) -> None:
    """Remove the runs of an earlier demo, unless the same command has done so before and was cut off."""
    from tllib_ancon.training.files import write_whole
    from tllib_ancon.training.run_directory import versions

    command = {"seeds": args.seeds, "epochs": [args.source_epochs, args.epochs], "versions": versions()}
    content = json.dumps(command).encode()
    if mark.is_file() and mark.read_bytes() == content:
        return
    for seed, name in product(args.seeds, ("source", *METHODS)):
        _directory(args, name, seed).clear()
    mark.parent.mkdir(parents=True, exist_ok=True)
    write_whole(mark, lambda file: file.write(content))


def _directory(args: argparse.Namespace, name: str, seed: int) -> Any:
    from tllib_ancon.training.run_directory import RunDirectory

    return RunDirectory(Path(args.out) / f"{name}-seed{seed}")


def summarize(results: dict[str, list[Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Per method the mean accuracy (percent) and ECE (in [0, 1]) of the selected models, and each seed's."""
    chosen = {SOURCE_ONLY: [result["start"] for result in results[METHODS[0]]]}
    chosen |= {method: [result["selected"] for result in results[method]] for method in METHODS}
    return {
        method: {
            "accuracy": fmean(metrics["accuracy"] for metrics in seeds),
            "ece": fmean(metrics["ece"] for metrics in seeds),
            "per_seed": [{name: metrics[name] for name in ("accuracy", "ece", "epoch")} for metrics in seeds],
        }
        for method, seeds in chosen.items()
    }


def table(summary: dict[str, dict[str, Any]], seeds: list[int]) -> str:
    """Accuracy of each seed, its mean, and the mean ECE, a row a method."""
    header = "rendered digits -> handwritten digits: accuracy in %, epoch selected by InfoMax\n\n"
    header += (
        f"{'':<15}" + "".join(f"{'seed ' + str(seed):>9}" for seed in seeds) + f"{'mean':>9}{'ECE (15 bins)':>16}\n"
    )
    rows = [
        f"{method:<15}"
        + "".join(f"{run['accuracy']:>9.1f}" for run in row["per_seed"])
        + f"{row['accuracy']:>9.1f}{row['ece']:>16.3f}\n"
        for method, row in summary.items()
    ]
    return header + "".join(rows)
