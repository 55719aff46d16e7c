"""The domains that a configuration names, and what the record says of the files behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from tllib_ancon import evaluation
from tllib_ancon.config import AdaptConfig
from tllib_ancon.data.class_folders import class_folders, require_same_order
from tllib_ancon.data.domain import Domain, numbered
from tllib_ancon.data.domains import as_domain, known_domains, missing_dataset, open_domain
from tllib_ancon.errors import UserError, unknown_name
from tllib_ancon.training.files import sha256
from tllib_ancon.training.passes import Predictions
from tllib_ancon.training.pictures import PictureConfig
from tllib_ancon.training.progress import Progress


def open_images(
    config: PictureConfig, codes: Sequence[str], split: str = "train", classes: Sequence[str] | None = None
) -> Domain:
    """The domain of these codes; with ``skip_corrupt`` without the images that cannot be decoded.

    Args:
        classes: names of the model's classes, where they are known

    Raises:
        UserError: no dataset or no domain is named, or they cannot be opened
    """
    if config.root is None:
        raise UserError("`root` is needed: the folder of the dataset")
    if config.data is None:
        raise missing_dataset(config.root)
    opened = open_domain(
        *(config.root, config.data, codes, split, config.num_classes, config.allow_outside_root, config.subset),
        classes=classes,
        image_column=config.image_column,
        label_column=config.label_column,
        allow_download=config.allow_download,
        skip_corrupt=config.skip_corrupt,
        workers=config.workers,
    )
    if config.skip_corrupt:
        progress, count = Progress(config.quiet), len(opened) + len(opened.skipped)
        progress.line(f"{len(opened.skipped)} of the {count} images of domain {opened.name} are left out")
        for reason in opened.skipped:
            progress.line(f"  {reason}")
    return opened


def target_images(config: AdaptConfig, images: Any, labels: Any, classes: Sequence[str] | None) -> Domain:
    """The images to adapt to: those that were given, or the domain that the configuration names.

    Args:
        images: see :func:`tllib_ancon.adapt`; None for the configuration's
        labels: (N,) true classes for the record
        classes: names of the model's classes, where they are known
    """
    if images is None:
        if labels is not None:
            raise UserError("`labels` belong to `images`; pass both, or neither")
        return open_images(config, config.target, classes=classes)
    return as_domain(images, labels=labels, classes=classes)


def with_classes(target: Domain, num_classes: int) -> Domain:
    """The target with as many classes as the model has; numbers stand for names that are not known.

    Raises:
        UserError: a label, or a number of classes, that does not fit the model
    """
    numbers = list(target.classes) == numbered(len(target.classes))
    if target.labels is not None and numbers and int(target.labels.max()) >= num_classes:
        raise UserError(f"`labels` has {int(target.labels.max())}, and the model has {num_classes} classes (from 0)")
    if target.classes and not numbers and len(target.classes) != num_classes:
        raise UserError(f"the model has {num_classes} classes, the target {len(target.classes)}")
    names = target.classes if len(target.classes) == num_classes else numbered(num_classes)
    return target.with_class_names(names)


def fingerprints(config: PictureConfig, *domains: Domain) -> dict[str, Any]:
    """What the files behind a configuration hold, for ``config.json``: a run continues on the same ones alone.

    Raises:
        UserError: the domains' class orders differ
    """
    first = domains[0]
    folders = {domain.name: class_folders(domain.paths, domain.labels) for domain in domains}
    for name, others in folders.items():
        require_same_order(folders[first.name], others, first.name, name)
    checkpoint = Path(getattr(config, "checkpoint", None) or "")
    return {
        "classes": list(first.classes),
        "class_folders": folders[first.name],
        "images": {
            domain.name: {"number": len(domain), "sha256": domain.fingerprint(), "skipped": list(domain.skipped)}
            for domain in domains
        },
        **({"checkpoint_sha256": sha256(checkpoint)} if checkpoint.is_file() else {}),
    }


def recorder(target: Domain) -> Callable[[Predictions], dict[str, Any]] | None:
    """Scores predictions on the target for the record, if it has labels."""
    if target.labels is None:
        return None
    labels = torch.from_numpy(target.labels)

    def record(predictions: Predictions) -> dict[str, Any]:
        return evaluation.summarize(predictions.logits.cpu(), labels[predictions.indices], target.num_classes)

    return record


def require_known_source(config: AdaptConfig) -> None:
    """``source`` of an adaptation is only written down, and names a domain of the dataset all the same; no image of it
    is needed.

    Raises:
        UserError: there is no such domain
    """
    if config.root is None or config.data is None:
        return
    known = known_domains(config.root, config.data)
    for code in config.source if known else ():
        if code not in known:
            raise unknown_name(f"source domain of {config.data}:", code, known)


def columns(target: Domain) -> tuple[Any, Sequence[str] | None, Any]:
    """Position in its list, file and label of each image; no files and no labels where there are none."""
    return target.positions, target.paths, target.labels
