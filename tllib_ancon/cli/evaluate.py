"""``tllib-ancon evaluate``: how good a checkpoint is on a labelled domain, or which epoch of a run to take."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tllib_ancon.cli import arguments
from tllib_ancon.errors import UserError
from tllib_ancon.training import launch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from tllib_ancon.selection import CRITERIA

    arguments.add_domain_arguments(parser, source=False, target=True, required=False)
    parser.add_argument("--checkpoint", metavar="FILE", help="model to evaluate")
    parser.add_argument("--per-class-eval", action="store_true", help="also the accuracy of each class")
    parser.set_defaults(seed=0)
    parser.add_argument("--json", metavar="FILE", help="write the numbers to this file")
    parser.add_argument("-b", "--batch-size", type=int, default=64, metavar="B", help="images a step")
    arguments.add_loading_arguments(parser)
    arguments.add_model_arguments(parser)
    arguments.add_transform_arguments(parser, scale=(0.5, 1.0))
    group = parser.add_argument_group("selection among the epochs of a finished run, without data or training")
    group.add_argument("--select", metavar="RUN_DIR", help="show the epoch that each criterion chooses in this run")
    group.add_argument("--criterion", choices=tuple(CRITERIA), default="infomax", help="whose choice --out writes")
    group.add_argument("--out", metavar="FILE", help="write the chosen model here; see adapt --save-epochs")


def run(args: argparse.Namespace) -> int:
    if args.select is not None:
        return launch.on_first(select)(args)
    missing = [name for name in ("root", "target", "checkpoint") if getattr(args, name) is None]
    if missing:
        raise UserError(f"evaluate needs ROOT, -t TARGET and --checkpoint FILE, or --select RUN_DIR; no {missing[0]}")
    if args.out is not None:
        raise UserError("--out writes the model that --select chooses; pass --select RUN_DIR")
    return evaluate(args)


def select(args: argparse.Namespace) -> int:
    """Choose again among the epochs of a run by every criterion, from what the run wrote down."""
    from tllib_ancon.report import reselection
    from tllib_ancon.training.files import copy_whole
    from tllib_ancon.training.run_directory import RunDirectory

    directory = RunDirectory(args.select)
    metrics = reselection.read_metrics(directory)
    print(reselection.table(metrics))
    if args.out is not None:
        choice = reselection.choose_epoch(metrics, args.criterion)
        copy_whole(reselection.chosen_checkpoint(directory, choice.epoch), Path(args.out))
        print(f"epoch {choice.epoch}, by {choice.criterion}, in {args.out}")
    return 0


def evaluate(args: argparse.Namespace) -> int:
    """Score a checkpoint on a domain."""
    import torch

    from tllib_ancon import selection
    from tllib_ancon.cli import building
    from tllib_ancon.training.passes import evaluation_loader, predict_domain

    if args.json and not Path(args.json).parent.is_dir():
        raise UserError(f"--json {args.json}: the folder {Path(args.json).parent} does not exist; create it first")
    target = building.domain(args, args.target, split="test")
    building.require_same_classes(args.checkpoint, target)
    model = building.start_classifier(args, target.num_classes)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    (transform,) = building.cached(args, building.transforms(args, model)[1:], target)
    loader = evaluation_loader(target, transform, args.batch_size, args.workers)
    predictions = predict_domain(model.to(device), loader, device)
    scores: dict[str, Any] = selection.score_all(predictions.logits.softmax(1))
    record = building.recorder(target)
    if record is not None:
        scores |= record(predictions)
    launch.on_first(_show)(scores, target.classes if args.per_class_eval else [], args.json)
    return 0


def _show(scores: dict[str, Any], classes: list[str], file: str | None) -> None:
    from tllib_ancon.training.files import write_whole

    _print(scores, classes)
    if file:
        content = (json.dumps(scores, indent=2) + "\n").encode()
        write_whole(Path(file), lambda opened: opened.write(content))


def _print(scores: dict[str, Any], classes: list[str]) -> None:
    from tllib_ancon.selection import CRITERIA

    if "accuracy" in scores:
        print(f"accuracy             {scores['accuracy']:.2f} %")
        print(f"mean class accuracy  {scores['mean_class_accuracy']:.2f} %")
        print(f"ECE (15 bins)        {scores['ece']:.4f}")
    for name in CRITERIA:
        if name in scores:
            print(f"{name:<20} {scores[name]:.4f}")
    if "per_class_accuracy" in scores:
        for name, accuracy in zip(classes, scores["per_class_accuracy"], strict=False):
            print(f"  {name:<18} " + ("no image" if accuracy is None else f"{accuracy:.2f} %"))
