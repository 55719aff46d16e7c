"""What a configuration stands for: domains, transforms, models, and what the record says of the files behind them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from tllib_ancon import evaluation
from tllib_ancon.config import ASSUMED, INHERITED, AdaptConfig, PredictConfig, PretrainConfig
from tllib_ancon.data import cache
from tllib_ancon.data.class_folders import class_folders, require_same_order
from tllib_ancon.data.device_augmentation import device_augmentation
from tllib_ancon.data.domain import Domain, numbered
from tllib_ancon.data.domains import as_domain, known_domains, missing_dataset, open_domain
from tllib_ancon.data.image_folder import FOLDER
from tllib_ancon.data.resizing import default_resizing
from tllib_ancon.data.transforms import (
    ImageTransform,
    TransformOptions,
    evaluation_transform,
    train_transform,
)
from tllib_ancon.errors import UserError, unknown_name
from tllib_ancon.given_paths import IMAGENET, checkpoint_or_run
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.models.loading import load
from tllib_ancon.models.networks import parse_options
from tllib_ancon.models.preprocessing import Preprocessing
from tllib_ancon.training.files import sha256
from tllib_ancon.training.passes import Predictions
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.run_directory import RunDirectory

PictureConfig = AdaptConfig | PretrainConfig | PredictConfig
"""Configurations that say which pictures, how they become tensors, and for which network."""

Transform = Callable[[Any], Any]
"""What the data hold -> tensor (C, H, W)."""

StartedConfig = TypeVar("StartedConfig", AdaptConfig, PredictConfig)
SizedConfig = TypeVar("SizedConfig", AdaptConfig, PretrainConfig, PredictConfig)


@dataclass(frozen=True)
class Transforms:
    """Image -> tensor, for training and for evaluation."""

    train: Transform
    evaluation: Transform

    @classmethod
    def given(cls, train: Callable[[Any], Any] | None, evaluation: Callable[[Any], Any] | None) -> Transforms | None:
        """Both transforms, or None if none was given.

        Raises:
            UserError: only one was given
        """
        if train is None and evaluation is None:
            return None
        if train is None or evaluation is None:
            missing = "train_transform" if train is None else "evaluation_transform"
            raise UserError(f"`{missing}` is needed as well: one transform for training, one for evaluation")
        return cls(train, evaluation)


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


def with_picture_defaults(config: SizedConfig, preprocessing: Preprocessing | None) -> SizedConfig:
    """The configuration with what is not given of its pictures: size and resizing are those that the network was built
    for or adapted with; else a dataset of TLLib's is resized as TLLib does, and other pictures keep their ratio."""
    train_resizing, val_resizing = default_resizing(config.data or FOLDER)
    defaults = {
        "image_size": getattr(preprocessing, "image_size", None) or ASSUMED["image_size"],
        "crop_fraction": getattr(preprocessing, "crop_fraction", None) or ASSUMED["crop_fraction"],
        "train_resizing": train_resizing,
        "val_resizing": getattr(preprocessing, "val_resizing", None) or val_resizing,
        "resize_size": getattr(preprocessing, "resize_size", None),
    }
    return config.replace(**{name: value for name, value in defaults.items() if getattr(config, name) is None})


def image_transforms(config: PictureConfig, preprocessing: Preprocessing | None, target: Domain) -> Transforms:
    """The transforms of the images of a network: none for tensors; for pictures those that its metadata or the
    configuration tell.

    Raises:
        UserError: pictures, and nothing says how the network takes them
    """
    if target.holds_tensors:
        return Transforms(as_it_is, as_it_is)
    return picture_transforms(config, preprocessing)


def as_it_is(image: Tensor) -> Tensor:
    """The transform of images that are tensors already."""
    return image


def probe(target: Domain, transform: Callable[[Any], Any]) -> Tensor:
    """Two images of the target as a batch, to call a network with."""
    return torch.stack([transform(target.image(index % len(target))) for index in range(2)])


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


def picture_transforms(config: PictureConfig, preprocessing: Preprocessing | None) -> Transforms:
    """The transforms of pictures.

    Args:
        config: what is read of it are the settings of :class:`~tllib_ancon.config.ImageConfig`
        preprocessing: of the network, where it is known

    Raises:
        UserError: nothing says how the network takes pictures
    """
    mean, std = normalisation(config, preprocessing)
    if mean is None or std is None:
        raise UserError(
            "nothing says how pictures are prepared for this network; pass `evaluation_transform`, to adapt also "
            "`train_transform`, or pass `image_size`, `norm_mean` and `norm_std`"
        )
    options = TransformOptions(
        train_resizing=config.train_resizing or "default",
        val_resizing=config.val_resizing or "default",
        resize_size=config.resize_size or ASSUMED["resize_size"],
        image_size=config.image_size or ASSUMED["image_size"],
        crop_fraction=config.crop_fraction or ASSUMED["crop_fraction"],
        scale=config.scale or (0.5, 1.0),
        ratio=config.ratio,
        padding=config.padding,
        rotation=config.rotation,
        horizontal_flip=not config.no_hflip,
        norm_mean=mean,
        norm_std=std,
    )
    train = device_augmentation if config.device_augmentation else train_transform
    return Transforms(train(options), evaluation_transform(options))


def normalisation(
    config: PictureConfig, preprocessing: Preprocessing | None
) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """Mean and standard deviation of each channel: the configuration's, else the network's, where they are known."""
    known = (None, None) if preprocessing is None else (preprocessing.mean, preprocessing.std)
    return config.norm_mean or known[0], config.norm_std or known[1]


def preprocessing_in(config: PictureConfig, preprocessing: Preprocessing | None) -> Preprocessing | None:
    """What a network expects of its images in these settings, so that the adapted model knows it too."""
    mean, std = normalisation(config, preprocessing)
    if mean is None or std is None:
        return None
    crop_fraction = config.crop_fraction or ASSUMED["crop_fraction"]
    return Preprocessing(mean, std, config.image_size, crop_fraction, config.val_resizing, config.resize_size)


def cached(config: PictureConfig, transforms: Transforms, domain: Domain) -> Domain:
    """The same domain, its pictures resized for these transforms and read from ``cache`` where it is set."""
    resizings = [
        transform.resizing
        for transform in (transforms.train, transforms.evaluation)
        if isinstance(transform, ImageTransform)
    ]
    if config.cache is None or not resizings:
        return domain
    return cache.cached(domain, config.cache, resizings, config.workers, Progress(config.quiet).bar)


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


def recorder(target: Domain) -> Callable[[Predictions], dict[str, Any]] | None:
    """Scores predictions on the target for the record, if it has labels."""
    if target.labels is None:
        return None
    labels = torch.from_numpy(target.labels)

    def record(predictions: Predictions) -> dict[str, Any]:
        return evaluation.summarize(predictions.logits.cpu(), labels[predictions.indices], target.num_classes)

    return record


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


@contextmanager
def using_threads(number: int | None) -> Iterator[None]:
    """In this context PyTorch uses so many threads on the CPU: their number decides in which order sums are taken.

    Args:
        number: None: as many as before
    """
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
