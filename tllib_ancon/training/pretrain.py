"""The one way to train a source model: by ERM, CDAN or MDD, from a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tllib_ancon import toolkit
from tllib_ancon.config import PretrainConfig
from tllib_ancon.errors import UserError
from tllib_ancon.models.backbones import Backbone, create_backbone, toolkit_backbone
from tllib_ancon.models.loading import source_model
from tllib_ancon.models.networks import parse_options
from tllib_ancon.toolkit.interface import Toolkit
from tllib_ancon.training import inputs, launch, pictures
from tllib_ancon.training.adversarial import AdversarialTraining, create_cdan, create_mdd
from tllib_ancon.training.erm import SourceOnly
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.reproducibility import make_reproducible, using_threads
from tllib_ancon.training.run_directory import RunDirectory
from tllib_ancon.training.source_training import SourceTraining

ERM = "erm"
CREATORS = {"cdan": create_cdan, "mdd": create_mdd}


def pretrain(config: PretrainConfig, part_of: str | Path | None = None) -> dict[str, Any]:
    """Train the source model that the settings describe, or finish the training.

    Args:
        config: with a ``log``, where the model is left
        part_of: the run directory of the run of two stages of which this is the first

    Returns: what ``result.json`` holds; its ``checkpoint`` is the name of the model's file

    Raises:
        UserError: a setting, model or image that cannot be used; a loss that stops being finite
        Interrupted: SIGTERM or SIGINT came; the same call continues
    """
    if config.log is None:
        raise UserError("training a source model needs a run directory; pass `log`")
    if config.method != ERM and not config.target:
        raise UserError(f"`method={config.method}` needs the target's unlabelled images; pass `target`")
    if not config.source:
        raise UserError("`source` is needed: the domain to train on")
    with using_threads(config.threads):
        return _train(pictures.with_picture_defaults(config.with_assumed(), None), RunDirectory(config.log, part_of))


def _train(config: PretrainConfig, directory: RunDirectory) -> dict[str, Any]:
    training, record = (_source_only if config.method == ERM else _adversarial)(config, directory)
    settings = {"command": "pretrain", **config.to_dict(), **launch.settings(), **record}
    for note in directory.begin(settings, config.overwrite):
        training.progress.line(note)
    if directory.finished:
        training.progress.line(f"{config.log} holds this run already, finished")
    return directory.result(("selected", "last"), training.scores) if directory.finished else training()


def _source_only(config: PretrainConfig, directory: RunDirectory) -> tuple[SourceTraining, dict[str, Any]]:
    source = inputs.open_images(config, config.source)
    record = {"inputs": inputs.fingerprints(config, source)}
    make_reproducible(config.seed, config.deterministic)
    backbone = _backbone(config)
    model = source_model(
        backbone,
        source.num_classes,
        _bottleneck(config),
        pool=not config.no_pool,
        bottleneck_dropout=config.bottleneck_dropout or 0.0,
    )
    transforms = pictures.picture_transforms(config, backbone.preprocessing)
    source = pictures.cached(config, transforms, source)
    progress = Progress(config.quiet, config.verbose)
    return SourceOnly(model, source, config, directory, transforms.train, transforms.evaluation, progress), record


def _adversarial(config: PretrainConfig, directory: RunDirectory) -> tuple[SourceTraining, dict[str, Any]]:
    source = inputs.open_images(config, config.source)
    target = inputs.open_images(config, config.target, classes=source.classes)
    found = toolkit.find()
    record = {"inputs": inputs.fingerprints(config, source, target), "toolkit": found.name}
    make_reproducible(config.seed, config.deterministic)
    backbone = _backbone(config, found)
    transforms = pictures.picture_transforms(config, backbone.preprocessing)
    source, target = (pictures.cached(config, transforms, domain) for domain in (source, target))
    pool_layer = backbone.pool_layer(not config.no_pool)
    network = CREATORS[config.method](found, backbone, source.num_classes, config, pool_layer)
    training = AdversarialTraining(
        network,
        source,
        target,
        config,
        directory,
        transforms.train,
        transforms.evaluation,
        inputs.recorder(target),
        Progress(config.quiet, config.verbose),
    )
    return training, record


def _backbone(config: PretrainConfig, found: Toolkit | None = None) -> Backbone:
    """The backbone with its pre-trained weights; with a toolkit, that one's own network where it has it."""
    arch, weights, options = str(config.arch), config.pretrained_weights, parse_options(config.arch_option or ())
    if found is None:
        return create_backbone(arch, not config.scratch, weights, options)
    return toolkit_backbone(arch, found, not config.scratch, weights, options)


def _bottleneck(config: PretrainConfig) -> int:
    assert config.bottleneck_dim is not None
    return config.bottleneck_dim
