"""The one way to adapt: from files or from Python objects, in memory or in a run directory."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from tllib_ancon.config import AdaptConfig, PretrainConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.sampling import hold_out
from tllib_ancon.errors import UserError, of_stage
from tllib_ancon.models.any_network import NetworkClassifier, as_classifier
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.models.preprocessing import preprocessing_of
from tllib_ancon.self_training.processes import Shard
from tllib_ancon.training import inputs, launch, pictures, saved_logits, saved_predictions, starts
from tllib_ancon.training.adaptation import Adaptation, images_of_an_epoch
from tllib_ancon.training.files import sha256_of_tensors
from tllib_ancon.training.pictures import Transform, Transforms
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.reproducibility import make_reproducible, using_threads
from tllib_ancon.training.run_directory import BEST, RESULT, RunDirectory
from tllib_ancon.training.run_in_memory import RunInMemory
from tllib_ancon.training.starts import Start
from tllib_ancon.training.tracking import Tracker

FIRST, SECOND = "pretrain", "adapt"
"""Folders of the two stages in the run directory of both."""


@dataclass(frozen=True)
class AdaptationResult:
    """The result of an adaptation.

    Attributes:
        model: with the weights of the selected epoch, in evaluation mode; of the class that was given, with its
            attributes and the names of its state dict
        metrics: numbers of each epoch; the first entry is the start's
        selected_epoch: position in ``metrics`` of the epoch whose model this is
        summary: what ``result.json`` holds
        config: the settings with every default filled in
    """

    model: nn.Module
    metrics: list[dict[str, Any]]
    selected_epoch: int
    summary: Mapping[str, Any]
    config: AdaptConfig


@dataclass(frozen=True)
class _Subject:
    """What is adapted on what."""

    classifier: Classifier
    target: Domain
    transforms: Transforms
    record: Mapping[str, Any]


def adapt(
    model: nn.Module | str | Path | None = None,
    images: Any = None,
    *,
    labels: Sequence[int] | None = None,
    head: str | None = None,
    train_transform: Transform | None = None,
    evaluation_transform: Transform | None = None,
    config: AdaptConfig | None = None,
    **settings: Any,
) -> AdaptationResult:
    """Adapt a model to the images of another domain, without labels.

    Args:
        model: any module from images (B, C, H, W) to logits (B, K), which stays as it is: a copy is adapted. Or a
            checkpoint or run directory. Default: what ``checkpoint`` in the settings names
        images: what to adapt to, N images: a folder of pictures, a :class:`~tllib_ancon.data.domain.Domain`, a
            map-style dataset of torch whose items are tensors, PIL images, or tuples or dicts that begin with one or
            have one as ``image`` or ``img``; or a Hugging Face dataset. Default: the domain that ``root``, ``data`` and
            ``target`` in the settings name
        labels: (N,) true classes in [0, K), scored for the record in ``metrics``; they reach neither training nor
            selection. Labels in the dataset's items are dropped
        head: dotted name of the model's last Linear, where it is not the one that is called last
        train_transform, evaluation_transform: item -> tensor (C, H, W). Default: for pictures those of the model's timm
            or torchvision metadata; tensors are taken as they come
        config: all settings at once
        **settings: or each by its name, such as ``method="gce+ancon"``, ``epochs=10``, ``seed=0``; see
            :class:`~tllib_ancon.config.AdaptConfig` and, for those of a method,
            :func:`tllib_ancon.methods.settings`. ``log=DIR`` keeps the run in a directory, where the same call
            continues it after a cut; without it nothing is written

    Returns: the adapted model and the numbers of each epoch

    Raises:
        UserError: a setting, model or image that cannot be used (which, why, what to do); logits or a loss that stop
            being finite
        Interrupted: SIGTERM or SIGINT came; with ``log`` the same call continues

    Example::

        >>> result = tllib_ancon.adapt(model, "photos/", method="ancon-auto", epochs=10)
        >>> predictions = tllib_ancon.predict(result.model, "photos/")
    """
    if config is not None and settings:
        raise UserError(f"give `config` or single settings, not both; got `{next(iter(settings))}` besides")
    config = AdaptConfig(**settings) if config is None else config
    if isinstance(model, str | Path):
        config, model = config.replace(checkpoint=str(model)), None
    if model is not None:
        config.refuse_beside_a_model()
    if isinstance(config.start, PretrainConfig):
        return _train_and_adapt(config)
    for name in ("save_epochs", "save_logits", "save_predictions"):
        if config.log is None and getattr(config, name):
            raise UserError(f"`{name}` needs a run directory; pass `log`")
    given = Transforms.given(train_transform, evaluation_transform)
    with using_threads(config.threads):
        return _run(*_subject(config, model, images, labels, head, given))


def _subject(
    config: AdaptConfig, model: nn.Module | None, images: Any, labels: Any, head: str | None, given: Transforms | None
) -> tuple[AdaptConfig, _Subject]:
    """The settings with every default filled in, and what they are about."""
    if model is None and config.checkpoint is None:
        raise UserError("no model to adapt: pass `model`, or `checkpoint`")
    start = None if model is not None else starts.find_start(str(config.checkpoint))
    if start is not None:
        _refuse_own_start(config, start)
        config = starts.inherited(config, start)
    classes = None if start is None else start.classes
    target = inputs.target_images(config, images, labels, classes)
    if start is None:
        make_reproducible(config.seed, config.deterministic)
        assert model is not None
        network = copy.deepcopy(model)
        preprocessing = preprocessing_of(network)
        config = pictures.with_picture_defaults(config, preprocessing)
        transforms = given or pictures.image_transforms(config, preprocessing, target)
        probe = pictures.probe(target, transforms.evaluation)
        classifier = as_classifier(network, head, probe)
        target = inputs.with_classes(target, classifier.num_classes)
        record = {"model": type(model).__qualname__, "weights_sha256": sha256_of_tensors(network.state_dict())}
    else:
        inputs.require_known_source(config)
        starts.require_same_classes(start, target)
        make_reproducible(config.seed, config.deterministic)
        classifier = starts.start_classifier(config, start, target.num_classes or None)
        target = inputs.with_classes(target, classifier.num_classes)
        config = pictures.with_picture_defaults(config, classifier.preprocessing)
        classifier.preprocessing = pictures.preprocessing_in(config, classifier.preprocessing)
        transforms = given or pictures.image_transforms(config, classifier.preprocessing, target)
        record = {}
    inputs_record = {"inputs": {**inputs.fingerprints(config, target), **record}}
    target = pictures.cached(config, transforms, target)
    return config, _Subject(classifier, target, transforms, inputs_record)


def _run(config: AdaptConfig, subject: _Subject) -> AdaptationResult:
    """Make the run of these settings, or finish it."""
    directory = None if config.log is None else RunDirectory(config.log)
    run = directory or RunInMemory()
    progress = Progress(config.quiet, config.verbose)
    keep = keep_logits = None
    positions, paths, labels = inputs.columns(subject.target)
    if config.save_predictions:
        keep = saved_predictions.keeper(Path(str(config.log)), positions, paths, labels)
    if config.save_logits:
        keep_logits = saved_logits.keeper(Path(str(config.log)), positions, labels)
    settings = {"command": "adapt", **config.to_dict(), **launch.settings(), **subject.record}
    follow = _tracker(config, settings)
    adaptation = Adaptation(
        subject.classifier,
        subject.target,
        config,
        run,
        subject.transforms.train,
        subject.transforms.evaluation,
        record=inputs.recorder(subject.target),
        keep=keep,
        keep_logits=keep_logits,
        progress=progress,
        follow=follow,
    )
    for note in run.begin(settings, config.overwrite):
        progress.line(note)
    if directory is not None and directory.finished:
        progress.line(f"{config.log} holds this run already, finished")
        summary, metrics = directory.result(("start", "selected", "last"), adaptation.scores), directory.metrics()
    else:
        summary = adaptation()
        metrics = adaptation.metrics
        if follow is not None:
            follow.finish()
    adaptation.restore_batch_norm()
    network = adaptation.network
    network.load_state_dict(run.load(BEST))
    network.eval()
    adapted = network.network if isinstance(network, NetworkClassifier) else network
    return AdaptationResult(adapted, metrics, summary["selected_epoch"], summary, config)


def _tracker(config: AdaptConfig, settings: Mapping[str, Any]) -> Tracker | None:
    """What follows the run, on the first of many processes."""
    if config.track is None or not launch.is_first():
        return None
    if config.log is None:
        raise UserError("`track` needs a run directory; pass `log`")
    return Tracker(config.track, Path(config.log), settings)


def _train_and_adapt(config: AdaptConfig) -> AdaptationResult:
    """Train the source model that the settings describe, and adapt it; what is finished is not made again.

    ``result.json`` in the run directory is that of the adaptation, with the first stage's under ``pretrain``.

    Raises:
        UserError: the run directory is that of one stage alone, or bad input to a stage
    """
    from tllib_ancon.training.pretrain import pretrain

    first = config.start
    assert isinstance(first, PretrainConfig)
    if config.log is None:
        raise UserError("a run of two stages needs a run directory; pass `log`")
    log = Path(config.log)
    _refuse_single_run(log)
    _require_enough_images(config)
    with of_stage(FIRST):
        trained = pretrain(first.replace(log=str(log / FIRST)), part_of=log)
    checkpoint = RunDirectory(log / FIRST).checkpoints / trained["checkpoint"]
    second = config.replace(start=None, checkpoint=str(checkpoint), log=str(log / SECOND))
    result = adapt(config=second)
    summary = {"pretrain": _numbers(trained), **_numbers(result.summary)}
    launch.on_first(RunDirectory(log).write_json)(RESULT, summary)
    return AdaptationResult(result.model, result.metrics, result.selected_epoch, summary, result.config)


def _require_enough_images(config: AdaptConfig) -> None:
    """Refuse before the source model is trained a target that is too small for the adaptation."""
    target = inputs.open_images(config, config.target)
    adapted, _ = hold_out(len(target), config.hold_out, config.seed)
    images_of_an_epoch(target.name, Shard.of_this_process(len(adapted)), config)


def _refuse_own_start(config: AdaptConfig, start: Start) -> None:
    """Refuse to write over the checkpoint to start from."""
    if (
        config.log is not None
        and Path(start.checkpoint).resolve().parent == RunDirectory(config.log).checkpoints.resolve()
    ):
        raise UserError(f"checkpoint {start.checkpoint} lies where this run writes its own; choose another `log`")


def _refuse_single_run(log: Path) -> None:
    from tllib_ancon.training.run_directory import CHECKPOINTS, CONFIG

    present = [name for name in (CONFIG, CHECKPOINTS) if (log / name).exists()]
    if present:
        raise UserError(
            f"run directory {log} holds {' and '.join(present)} of a run of another command, whose {RESULT} would be "
            "replaced; choose another `log`"
        )


def _numbers(result: Mapping[str, Any]) -> dict[str, Any]:
    """Without the checksums of the stage's own files."""
    return {name: value for name, value in result.items() if name != "sha256"}
