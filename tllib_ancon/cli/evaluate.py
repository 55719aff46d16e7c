"""``tllib-ancon evaluate``: how good a checkpoint is on a labelled domain, or which epoch of a run to take."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tllib_ancon.cli import stages
from tllib_ancon.cli.flags import Flags, checked
from tllib_ancon.cli.parser import Parser
from tllib_ancon.config import CRITERIA_OF_AN_EPOCH, PredictConfig
from tllib_ancon.errors import UserError
from tllib_ancon.settings import settings_of, types_of


def add_arguments(parser: Parser) -> None:
    _flags().add(parser)
    parser.add_argument(
        "--per-class-eval", action="store_true", help="show the accuracy of each class, too (default: off)"
    )
    parser.add_argument("--json", metavar="FILE", help="JSON file to write the numbers to (default: none)")
    stages.add_config_argument(parser)
    group = parser.add_argument_group("selection among the epochs of a finished run, without data or training")
    group.add_argument(
        "--select", metavar="RUN_DIR", help="show the epoch that each criterion chooses in this run (default: none)"
    )
    group.add_argument(
        "--criterion",
        choices=CRITERIA_OF_AN_EPOCH,
        default="infomax",
        help="criterion whose epoch --out writes (default: infomax)",
    )
    group.add_argument(
        "--out",
        metavar="FILE",
        help="file to write the chosen model to, of a run with adapt --save-epochs (default: none)",
    )
    parser.usage = (
        "%(prog)s ROOT -d DATA -t TARGET --checkpoint FILE [flags]\n"
        "       %(prog)s --select RUN_DIR [--criterion NAME] [--out FILE]"
    )


def _flags() -> Flags:
    return Flags(settings_of(PredictConfig), types_of(PredictConfig), positional=("root",)).without("source")


def run(args: argparse.Namespace) -> int:
    if args.select is not None:
        from tllib_ancon.training import launch

        return launch.on_first(select)(args)
    with checked(_flags()):
        file = stages.from_file(args, PredictConfig)
        config = stages.configured(PredictConfig, args.config, file, {**file, **_flags().given(args)})
        missing = [name for name in ("root", "target", "checkpoint") if not getattr(config, name)]
        if missing:
            raise UserError(
                f"evaluate needs ROOT, -t TARGET and --checkpoint FILE, or --select RUN_DIR; no {missing[0]}"
            )
        if args.out is not None:
            raise UserError("--out writes the model that --select chooses; pass --select RUN_DIR")
        stages.require_paths(config)

        from tllib_ancon.training.reproducibility import using_threads

        with using_threads(config.threads):
            return evaluate(config, args.json, args.per_class_eval)


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


def evaluate(config: PredictConfig, file: str | None, per_class: bool) -> int:
    """Score a checkpoint on a domain."""
    from tllib_ancon import selection
    from tllib_ancon.training import inputs, launch, pictures, starts
    from tllib_ancon.training.passes import device, evaluation_loader, predict_domain
    from tllib_ancon.training.pictures import Transforms
    from tllib_ancon.training.progress import Progress

    if file and not Path(file).parent.is_dir():
        raise UserError(f"--json {file}: the folder {Path(file).parent} does not exist; create it first")
    start = starts.find_start(str(config.checkpoint))
    config = starts.inherited(config, start)
    target = inputs.open_images(config, config.target, "test", start.classes)
    starts.require_same_classes(start, target)
    model = starts.start_classifier(config, start, target.num_classes or None)
    config = pictures.with_picture_defaults(config, model.preprocessing)
    transform = pictures.picture_transforms(config, model.preprocessing).evaluation
    target = pictures.cached(config, Transforms(transform, transform), target)
    loader = evaluation_loader(target, transform, config.batch_size, config.workers)
    with Progress(config.quiet).bar("evaluating", len(loader)) as bar:
        predictions = predict_domain(model.to(device()), _counted(loader, bar), device(), loader.num_images)
    scores: dict[str, Any] = {"images": len(target), **selection.score_all(predictions.logits.softmax(1))}
    record = inputs.recorder(target)
    if record is not None:
        scores |= record(predictions)
    launch.on_first(_show)(scores, list(target.classes) if per_class else [], file)
    return 0


def _counted(loader: Iterable[Any], bar: Any) -> Iterator[Any]:
    for batch in loader:
        yield batch
        bar.update()


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
    print(f"over all {scores['images']} images, where adapt scores its hold-out:")
    for name in CRITERIA:
        if name in scores:
            print(f"{name:<20} {scores[name]:.4f}")
    if "per_class_accuracy" in scores:
        for name, accuracy in zip(classes, scores["per_class_accuracy"], strict=False):
            print(f"  {name:<18} " + ("no image" if accuracy is None else f"{accuracy:.2f} %"))
