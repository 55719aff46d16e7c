"""From parsed arguments to domains, transforms and models."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tllib_ancon import evaluation
from tllib_ancon.cli.arguments import pick
from tllib_ancon.data.cache import cached_images
from tllib_ancon.data.class_folders import class_folders, require_same_order
from tllib_ancon.data.device_augmentation import device_augmentation
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.domains import open_domain
from tllib_ancon.data.transforms import ImageTransform, TransformOptions, evaluation_transform, train_transform
from tllib_ancon.data.unreadable import without_unreadable
from tllib_ancon.errors import UserError
from tllib_ancon.models.backbones import Backbone, create_backbone, parse_options, toolkit_backbone
from tllib_ancon.models.classifier import Classifier, shot_classifier
from tllib_ancon.models.loading import IMAGENET, load
from tllib_ancon.toolkit.interface import Toolkit
from tllib_ancon.training import saved_predictions
from tllib_ancon.training.files import sha256
from tllib_ancon.training.passes import Predictions
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.reproducibility import make_reproducible
from tllib_ancon.training.run_directory import RunDirectory

Transforms = tuple[ImageTransform, ImageTransform]


def domain(args: argparse.Namespace, codes: Sequence[str], split: str = "train") -> Domain:
    """The domain of these codes, with ``--skip-corrupt`` without the images that cannot be decoded."""
    opened = open_domain(args.root, args.data, codes, split, args.num_classes, args.allow_outside_root, args.subset)
    if not getattr(args, "skip_corrupt", False):
        return opened
    readable = without_unreadable(opened, args.workers)
    progress = Progress(getattr(args, "quiet", False))
    progress.line(f"{len(readable.skipped)} of the {len(opened)} images of domain {opened.name} are left out")
    for reason in readable.skipped:
        progress.line(f"  {reason}")
    return readable


def inputs(args: argparse.Namespace, *domains: Domain) -> dict[str, Any]:
    """What the files behind the arguments hold, for ``config.json``: a run continues on the same ones alone.

    Raises:
        UserError: the domains' class orders differ
    """
    first = domains[0]
    folders = {domain.name: class_folders(domain.samples) for domain in domains}
    for name, others in folders.items():
        require_same_order(folders[first.name], others, first.name, name)
    checkpoint = Path(getattr(args, "checkpoint", ""))
    return {
        "classes": first.classes,
        "class_folders": folders[first.name],
        "images": {
            domain.name: {"number": len(domain), "sha256": domain.fingerprint(args.root), "skipped": domain.skipped}
            for domain in domains
        },
        **({"checkpoint_sha256": sha256(checkpoint)} if checkpoint.is_file() else {}),
    }


def require_same_classes(checkpoint: str, domain: Domain) -> None:
    """Refuse a checkpoint of one of our runs on other classes than the domain's.

    Raises:
        UserError: as many classes, but others or in another order (which)
    """
    run = Path(checkpoint).resolve().parent.parent
    try:
        recorded = RunDirectory(run).config().get("inputs", {})
    except UserError:  # not one of our runs
        return
    if checkpoint == IMAGENET or not isinstance(recorded, dict):
        return
    for label, (there, here) in enumerate(zip(recorded.get("classes", ()), domain.classes, strict=False)):
        if str(label) not in (there, here) and there != here:
            raise UserError(
                f"checkpoint {checkpoint} is of another dataset: its run {run} was trained with {there!r} as class "
                f"{label}, which is {here!r} in domain {domain.name}"
            )
    require_same_order(class_folders(domain.samples), recorded.get("class_folders", {}), domain.name, f"the run {run}")


def backbone(args: argparse.Namespace, network: Toolkit | None = None) -> Backbone:
    """The backbone ``-a`` names with its pre-trained weights, as the toolkit's own network if one is given; from here
    on everything random follows ``--seed``."""
    make_reproducible(args.seed, getattr(args, "deterministic", False))
    weights, options = getattr(args, "pretrained_weights", None), parse_options(args.arch_option)
    if network is None:
        return create_backbone(args.arch, not args.scratch, weights, options)
    return toolkit_backbone(args.arch, network, not args.scratch, weights, options)


def transforms(args: argparse.Namespace, model: Backbone | Classifier) -> Transforms:
    """The training and the evaluation transform."""
    preprocessing = model.preprocessing
    assert preprocessing is not None, "a network that has a name here tells"
    names = ("train_resizing", "val_resizing", "resize_size", "image_size", "scale", "ratio", "padding", "rotation")
    options = TransformOptions(
        **pick(args, names),
        horizontal_flip=not args.no_hflip,
        norm_mean=args.norm_mean or preprocessing.mean,
        norm_std=args.norm_std or preprocessing.std,
    )
    train = device_augmentation if args.device_augmentation else train_transform
    return train(options), evaluation_transform(options)


def cached(args: argparse.Namespace, transforms: Sequence[ImageTransform], *domains: Domain) -> list[ImageTransform]:
    """The same transforms, reading the images of these domains from ``--cache``, if it was given."""
    if args.cache is None:
        return list(transforms)
    paths = [sample.path for domain in domains for sample in domain.samples]
    bar = Progress(getattr(args, "quiet", False)).bar
    return [
        replace(transform, read=cached_images(args.cache, paths, transform.resizing, args.workers, bar))
        for transform in transforms
    ]


def pool_layer(args: argparse.Namespace, backbone: Backbone) -> torch.nn.Module | None:
    """None stands for average pooling."""
    return torch.nn.Identity() if args.no_pool else backbone.pool_layer()


def source_model(args: argparse.Namespace, backbone: Backbone, num_classes: int) -> Classifier:
    """A model to train on the source: SHOT's layers on a backbone."""
    return shot_classifier(
        backbone.network, num_classes, args.bottleneck_dim, pool_layer(args, backbone), backbone.pretrained
    )


def start_classifier(args: argparse.Namespace, num_classes: int) -> Classifier:
    """The model in ``--checkpoint``; from here on everything random follows ``--seed``."""
    make_reproducible(args.seed, getattr(args, "deterministic", False))
    return load(
        args.checkpoint,
        args.arch,
        num_classes,
        arch_options=parse_options(args.arch_option),
        pool=not args.no_pool,
        scratch=args.scratch,
        pretrained_weights=getattr(args, "pretrained_weights", None),
    )


def recorder(target: Domain) -> Callable[[Predictions], dict[str, Any]] | None:
    """Scores predictions on the target for the record, if it has labels."""
    if not target.labelled:
        return None
    labels = torch.tensor([sample.label for sample in target.samples])

    def record(predictions: Predictions) -> dict[str, Any]:
        return evaluation.summarize(predictions.logits.cpu(), labels[predictions.indices], target.num_classes)

    return record


def keeper(target: Domain, directory: RunDirectory) -> Callable[[Predictions, torch.Tensor | None], None]:
    """Writes ``predictions.npz``, with the labels of the target if it has them."""
    labels = [sample.label for sample in target.samples] if target.labelled else None
    return saved_predictions.keeper(
        directory.path, target.positions, [sample.path for sample in target.samples], labels
    )


def progress(args: argparse.Namespace) -> Progress:
    if args.quiet and args.verbose:
        raise UserError("--quiet and --verbose exclude each other")
    return Progress(args.quiet, args.verbose)
