"""The trained model that a stage starts from, and what the run that trained it recorded."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tllib_ancon.config import ASSUMED, INHERITED, AdaptConfig, PredictConfig
from tllib_ancon.data.class_folders import class_folders, require_same_order
from tllib_ancon.data.domain import Domain
from tllib_ancon.errors import UserError
from tllib_ancon.given_paths import IMAGENET, checkpoint_or_run
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.models.loading import load
from tllib_ancon.models.networks import parse_options
from tllib_ancon.training.run_directory import RunDirectory

StartedConfig = TypeVar("StartedConfig", AdaptConfig, PredictConfig)


@dataclass(frozen=True)
class Start:
    """A trained model that a stage starts from, and the run that trained it.

    Attributes:
        checkpoint: the file, or ``imagenet``
        run: the run directory around it; None without one
        recorded: that run's configuration; None without one
        notes: what is to be said once the model is loaded
    """

    checkpoint: str
    run: Path | None
    recorded: Mapping[str, Any] | None
    notes: list[str] = field(default_factory=list)

    @property
    def classes(self) -> list[str] | None:
        """The class names that the run recorded, in the order of the labels."""
        inputs = (self.recorded or {}).get("inputs")
        return inputs.get("classes") if isinstance(inputs, Mapping) else None


def find_start(checkpoint: str) -> Start:
    """The start that a checkpoint or a run directory names.

    Raises:
        UserError: there is no such file, or the run directory holds no checkpoint
    """
    if checkpoint == IMAGENET:
        return Start(checkpoint, None, None)
    path = checkpoint_or_run(checkpoint)
    if path.is_dir():
        path = _checkpoint_of(RunDirectory(path))
    run = path.resolve().parent.parent
    try:
        return Start(str(path), run, RunDirectory(run).config())
    except UserError:  # no run of this package
        return Start(str(path), None, None)


def _checkpoint_of(run: RunDirectory) -> Path:
    """The checkpoint of a run to start from or to predict with: the selected one, where one was selected."""
    for name in ("best.pth", "latest.pth"):
        if (run.checkpoints / name).is_file():
            return run.checkpoints / name
    for stage in ("adapt", "pretrain"):
        if (run.path / stage / "config.json").is_file():
            return _checkpoint_of(RunDirectory(run.path / stage))
    raise UserError(f"{run.path} holds no checkpoint; give a checkpoint or a run directory")


def inherited(config: StartedConfig, start: Start) -> StartedConfig:
    """The configuration with what the start's run knows of model and pictures; of a checkpoint without a run one line
    says what is assumed.

    Raises:
        UserError: a setting contradicts that run
    """
    full = config.inherit(start.recorded, start.checkpoint)
    if start.recorded is None and start.checkpoint != IMAGENET and not config.quiet:
        assumed = [f"{name} {ASSUMED[name]}" for name in INHERITED if getattr(config, name) is None and name in ASSUMED]
        if assumed:
            line = f"{start.checkpoint} lies in no run directory; assumed: {', '.join(assumed)}"
            start.notes.append(line.replace("()", "none"))
    return full


def start_classifier(config: AdaptConfig | PredictConfig, start: Start, num_classes: int | None) -> Classifier:
    """The model in a checkpoint.

    Args:
        num_classes: of the dataset; None: the checkpoint's

    Raises:
        UserError: an unreadable checkpoint, or one that does not fit (which tensors)
    """
    model = load(
        start.checkpoint,
        config.arch or ASSUMED["arch"],
        num_classes,
        arch_options=parse_options(config.arch_option or ()),
        pool=not config.no_pool,
        bottleneck_dropout=config.bottleneck_dropout or 0.0,
        scratch=config.scratch,
        pretrained_weights=config.pretrained_weights,
    )
    while start.notes:
        print(f"tllib-ancon: {start.notes.pop()}", file=sys.stderr)
    return model


def require_same_classes(start: Start, domain: Domain) -> None:
    """Refuse a model of one of our runs on other classes than the domain's.

    Raises:
        UserError: as many classes, but others or in another order (which)
    """
    recorded = (start.recorded or {}).get("inputs", {})
    if not isinstance(recorded, Mapping):
        return
    for label, (there, here) in enumerate(zip(start.classes or (), domain.classes, strict=False)):
        if str(label) not in (there, here) and there != here:
            raise UserError(
                f"checkpoint {start.checkpoint} is of another dataset: its run {start.run} was trained with {there!r} "
                f"as class {label}, which is {here!r} in domain {domain.name}"
            )
    folders = recorded.get("class_folders", {})
    require_same_order(class_folders(domain.paths, domain.labels), folders, domain.name, f"the run {start.run}")
