"""What a run starts from: the images that a configuration names, their transforms, and a trained model."""

from __future__ import annotations

import copy
import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from tllib_ancon import evaluation
from tllib_ancon.assessing import SourceStatistics
from tllib_ancon.config import ASSUMED, AdaptConfig, ModelConfig, PredictConfig, PretrainConfig
from tllib_ancon.data import cache
from tllib_ancon.data.domain import Domain, class_folders, numbered, require_same_order
from tllib_ancon.data.folders import SUFFIXES
from tllib_ancon.data.lists import read_class_names, read_image_list
from tllib_ancon.data.open import as_domain, default_resizing, missing_dataset, open_arrays, open_domain
from tllib_ancon.data.tensors import ARRAYS, Mapped
from tllib_ancon.data.transforms import (
    ImageTransform,
    Preprocessing,
    TransformOptions,
    device_augmentation,
    evaluation_transform,
    second_view,
    train_transform,
)
from tllib_ancon.errors import UserError, reading
from tllib_ancon.models.checkpoints import load_into, load_state_dict, without_prefix
from tllib_ancon.models.classifier import Classifier, as_classifier
from tllib_ancon.models.foundation import load_named
from tllib_ancon.models.networks import IMAGENET, OWN, build, imported, load, parse_options, recipe_of
from tllib_ancon.settings import settings_of
from tllib_ancon.text import say
from tllib_ancon.training import devices
from tllib_ancon.training.files import sha256
from tllib_ancon.training.inference import Predictions
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.run import BEST, CONFIG, LATEST, STATISTICS, RunDirectory

ImagesConfig = AdaptConfig | PretrainConfig | PredictConfig
"""Configurations that say which images, how they become tensors, and for which network."""

SMALL = 64
"""Side in pixels below which networks are trained on shifted images rather than on random resized crops."""

LIST_SUFFIXES = (".txt", ".csv", ".lst", ".list", "")

Transform = Callable[[Any], Any]
"""What the data hold -> tensor (C, H, W)."""

SizedConfig = TypeVar("SizedConfig", AdaptConfig, PretrainConfig, PredictConfig)


@dataclass(frozen=True)
class Transforms:
    """Image -> tensor for training and for evaluation, and the network's preprocessing, if known."""

    train: Transform
    evaluation: Transform
    preprocessing: Preprocessing | None = None
    second_view: Callable[[Tensor], Tensor] | None = None  # training images -> another view of each
    augment: Callable[[Tensor], Tensor] | None = None  # a batch of training tensors -> the same, augmented


Given = Transforms | Preprocessing | None
"""Transforms or processor settings that a user passes in place of the network's metadata."""


def choose_transforms(
    config: SizedConfig, preprocessing: Preprocessing | None, images: Domain, given: Given = None
) -> tuple[SizedConfig, Transforms]:
    """The configuration with its image defaults, and the transforms: the given ones, none for tensors, else from the
    network's metadata or the configuration.

    For an unknown network one line reports the assumptions. All of an image is resized to ``image_size``, by default
    the side of square images in memory, or 224. In training a small one is shifted, a large one cropped.
    """
    if isinstance(given, Preprocessing):
        preprocessing, given = given, None
    if given is not None or images.holds_tensors:
        config, known = with_preprocessing(config, preprocessing)
        return config, replace(given or Transforms(nn.Identity(), nn.Identity()), preprocessing=known)
    assumed: dict[str, Any] = {}
    if preprocessing is None and config.crop_fraction is None:
        size = config.image_size or images.images.side or ASSUMED["image_size"]
        train = {"train_resizing": "cen.crop", "padding": 4} if size < SMALL else {"train_resizing": "default"}
        values = {"image_size": size, "crop_fraction": 1.0, "val_resizing": "default", **train}
        assumed = {name: value for name, value in values.items() if getattr(config, name) is None}
    config, known = with_preprocessing(config.replace(**assumed), preprocessing)
    if known is None:
        raise UserError(
            "the preprocessing of this network is unknown; pass `evaluation_transform`, to adapt also "
            "`train_transform`, or pass `image_size`, `norm_mean` and `norm_std`"
        )
    chosen = {entry.name: getattr(config, entry.name, None) for entry in fields(TransformOptions)}
    chosen |= {"horizontal_flip": not config.no_hflip, "norm_mean": known.mean, "norm_std": known.std}
    chosen |= {"resample": known.resample, "floor_crop": known.floor_crop}
    options = TransformOptions(**{name: value for name, value in chosen.items() if value is not None})
    if known.assumed and config.norm_mean is None:
        Progress(config.quiet).line(known.assumed)
    if assumed:
        learned = "shifted by up to 4 pixels" if size < SMALL else "cropped at random"
        shown = f"resized to {size} × {size} pixels, in training {learned}"
        Progress(config.quiet).line(f"the preprocessing of this network is unknown; images are {shown}")
    train_of = device_augmentation if config.device_augmentation else train_transform
    return config, Transforms(train_of(options), evaluation_transform(options), known, second_view(options))


def with_preprocessing(
    config: SizedConfig, preprocessing: Preprocessing | None
) -> tuple[SizedConfig, Preprocessing | None]:
    """The configuration with what is not given of its images, and what the network then expects of them; None where
    mean and standard deviation are unknown. Size and resizing come from the network or its run. Otherwise datasets of
    TLLib are resized as TLLib does, and other images keep their ratio."""
    known, resizing = preprocessing or Preprocessing((), ()), default_resizing(config.data)
    sizes = {"image_size": ASSUMED["image_size"], "crop_fraction": None, "val_resizing": resizing, "resize_size": None}
    filled = {name: getattr(config, name) or getattr(known, name) or usual for name, usual in sizes.items()}
    known = replace(known, mean=config.norm_mean or known.mean, std=config.norm_std or known.std, **filled)
    training = {"train_resizing": config.train_resizing or resizing, "padding": config.padding or 0}
    return config.replace(**filled, **training), known if known.mean and known.std else None


def fastest(config: SizedConfig, network: nn.Module, recorded: Mapping[str, Any]) -> SizedConfig:
    """Fill in the settings about speed: those of the recorded run, else the faster choice for this network. Few
    convolutions or few weights do not justify other rounding."""
    modules = [*network.modules()]
    pools = any(isinstance(module, nn.MaxPool2d) for module in modules)
    chosen = {
        "mixed_precision": "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "no",
        "channels_last": pools or sum(isinstance(module, nn.Conv2d) for module in modules) >= 8,
        "fused": sum(parameter.numel() for parameter in network.parameters()) >= 10**6,
    }
    return config.replace(**{n: recorded.get(n, best) for n, best in chosen.items() if getattr(config, n) is None})


def unpacking(network: nn.Module, images: Domain) -> AbstractContextManager[Any]:
    """Let a network take the rows of several arrays by their names, in this context or for ever; of other images
    nothing changes."""
    if not isinstance(images.images, Mapped):
        return nullcontext()
    return network.register_forward_pre_hook(images.images.layout, with_kwargs=True)


def cached(config: ImagesConfig, transforms: Transforms, domain: Domain) -> Domain:
    """The same domain with its resized images read from ``cache``, if set. Training caches them in memory otherwise, in
    a quarter of the free memory."""
    both = (transforms.train, transforms.evaluation)
    resizings = [transform.resizing for transform in both if isinstance(transform, ImageTransform)]
    progress = Progress(config.quiet)
    if config.cache is not None:
        return cache.cached(domain, config.cache, resizings)
    if isinstance(config, PredictConfig):
        return domain
    return cache.kept_in_memory(domain, resizings, devices.free_memory() // 4, progress.line)


def open_images(
    config: ImagesConfig, codes: Sequence[str], split: str = "train", classes: Sequence[str] | None = None
) -> Domain:
    """The domain of these codes, or without dataset and codes the folder ``root``; with ``skip_corrupt`` without the
    images that cannot be decoded. ``classes`` are the names of the model's classes, where they are known."""
    if config.root is None:
        raise UserError("`root` is needed: the folder of the dataset")
    if config.data is None and codes:
        raise missing_dataset(config.root)
    if config.data is None:
        opened = as_domain(
            config.root,
            classes=classes,
            skip_corrupt=config.skip_corrupt,
            workers=config.workers,
            allow_outside=config.allow_outside_root,
        )
    elif not codes and config.data != ARRAYS:
        raise UserError("`target` is needed as well: which domain of the dataset; or leave `data` out")
    else:
        how = {"skip_corrupt": config.skip_corrupt, "workers": config.workers, **config.opening}
        opened = open_domain(config.root, config.data, codes, split, classes=classes, **how)
    if config.skip_corrupt:
        count = len(opened) + len(opened.skipped)
        progress = Progress(config.quiet)
        progress.line(f"{len(opened.skipped)} of the {count} images of domain {opened.name} are left out")
        for reason in opened.skipped:
            progress.line(f"  {reason}")
    return opened


def show_ignored(config: ImagesConfig, images: Domain) -> None:
    """Show how many files beside the images were ignored."""
    if images.ignored:
        Progress(config.quiet).line(f"{len(images):,} images; {images.ignored}")


def unlabelled_images(config: PredictConfig) -> Domain:
    """The images of a list or of a folder, or one image; no label is read."""
    root = Path(str(config.root))
    if config.data == ARRAYS:
        return open_arrays(root)
    if config.data is not None and not root.is_file():
        raise UserError("`target` is needed as well: which domain of the dataset; or leave `data` out")
    if root.is_file() and not root.name.lower().endswith(SUFFIXES):
        if root.suffix.lower() not in LIST_SUFFIXES:
            raise UserError(f"{root} is no image ({', '.join(SUFFIXES)}) and no image list (.txt); convert it")
        paths, _ = read_image_list(root, root.parent.parent if root.parent.name == "image_list" else root.parent)
        return Domain.of_files(root.stem, paths)
    return as_domain(str(root), labels=False)


def with_classes(target: Domain, num_classes: int, start: TrainedModel | None = None) -> Domain:
    """The target with as many classes as the model has, numbers in place of unknown names. Raises an error if the
    model ``start`` was trained on other classes, or in another order."""
    if start is not None:
        _require_same_classes(start, target)
    numbers = list(target.classes) == numbered(len(target.classes))
    if target.labels is not None and numbers and int(target.labels.max()) >= num_classes:
        raise UserError(f"`labels` has {int(target.labels.max())}, and the model has {num_classes} classes (from 0)")
    if target.classes and not numbers and len(target.classes) != num_classes:
        name = "the model" if start is None else f"checkpoint {start.checkpoint}"
        raise UserError(
            f"{name} has {num_classes} classes, the dataset has {len(target.classes)}; give a model and a dataset of "
            "the same classes"
        )
    return target if len(target.classes) == num_classes else replace(target, classes=numbered(num_classes))


def fingerprints(config: ImagesConfig, *domains: Domain) -> dict[str, Any]:
    """What the files behind a configuration hold, for ``config.json``: a run continues on the same ones alone."""
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
        **({"checkpoint_sha256": sha256(checkpoint.resolve())} if checkpoint.is_file() else {}),
    }


def sha256_of_tensors(state: Mapping[str, Tensor]) -> str:
    """SHA-256 of the names and the bytes of tensors, whatever device they are on."""
    digest = hashlib.sha256()
    for name, tensor in state.items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def recorder(target: Domain) -> Callable[[Predictions], dict[str, Any]] | None:
    """A function that scores predictions on the target for the record; None where the target has no labels."""
    if target.labels is None:
        return None
    labels, count = torch.from_numpy(target.labels), target.num_classes
    return lambda found: evaluation.summarize(found.logits.cpu(), labels[found.indices], count)


StartedConfig = TypeVar("StartedConfig", AdaptConfig, PredictConfig)


@dataclass(frozen=True)
class TrainedModel:
    """A trained model that a stage starts from, and the run that trained it, where it lies in a run directory."""

    checkpoint: str  # the file, or "imagenet"
    run: Path | None = None
    recorded: Mapping[str, Any] | None = None
    notes: list[str] = field(default_factory=list)  # said once the model is loaded
    given: nn.Module | None = None  # the network that takes the checkpoint's weights, where nothing builds it
    names: list[str] | None = None  # of the classes, where no run tells them

    @property
    def classes(self) -> list[str] | None:
        """The names that are given or that the run recorded, in the order of the labels."""
        names: list[str] | None = self.names or (self.recorded or {}).get("inputs", {}).get("classes")
        return names

    @property
    def network(self) -> dict[str, Any] | None:
        """What the run recorded of a whole network, by :func:`network_record`."""
        recorded = self.recorded or {}
        old = {"library": OWN, "name": recorded.get("inputs", {}).get("model")}  # of version 0.1, made in Python
        return recorded.get("network") or (old if old["name"] else None)

    @property
    def statistics(self) -> SourceStatistics | None:
        """What the run that trained the model kept of its source."""
        if self.run is None or Path(self.checkpoint).name != BEST or not (path := self.run / STATISTICS).is_file():
            return None
        with reading(path, "statistics of a source", "; remove it to continue without them"):
            read = json.loads(path.read_bytes())
            return SourceStatistics(*(read[field.name] for field in fields(SourceStatistics)))

    @property
    def is_whole(self) -> bool:
        """Whether its network is one that was given as an object, or that a record builds."""
        return self.given is not None or self.network is not None


def network_record(classifier: Any, images: Tensor, transforms: Transforms, taken: bool) -> dict[str, Any]:
    """Record of a whole network beside its weights: :func:`~tllib_ancon.models.networks.recipe_of`, head, shape of the
    images, and preprocessing unless the user passed transforms."""
    known = transforms.preprocessing if taken else None
    return {
        **recipe_of(classifier, classifier.network, images),
        "head": classifier.head_name,
        "images": list(images.shape[1:]),
        "preprocessing": known and asdict(known),
    }


def starting_model(config: AdaptConfig | PredictConfig) -> TrainedModel:
    """The trained model that a configuration names: a checkpoint's, else one of transformers or open_clip."""
    names = None if config.class_names is None else read_class_names(Path(config.class_names))
    if config.checkpoint is not None:
        return replace(find_model(config.checkpoint, config.model), names=names)
    if ":" not in str(config.arch):
        raise UserError("no model to start from: pass `checkpoint`, or an `arch` that begins with hf: or open_clip:")
    network, names = load_named(str(config.arch), names, config.prompts or 1, config.allow_download)
    return TrainedModel(str(config.arch), given=network, names=names)


def find_model(checkpoint: str, model: str | nn.Module | None = None) -> TrainedModel:
    """The trained model of a checkpoint or a run directory. ``model`` is the network, or names the function that
    returns it, if no library can build it."""
    if checkpoint == IMAGENET:
        return TrainedModel(checkpoint)
    path = Path(checkpoint)
    if not (path.is_file() or path.is_dir()):
        raise UserError(f"checkpoint {checkpoint} is not a file; give a checkpoint or a run directory")
    if path.is_dir():
        path = _checkpoint_of(RunDirectory(path))
    run = path.resolve().parent.parent
    start = TrainedModel(str(path), given=imported(model) if isinstance(model, str) else model)
    if (run / CONFIG).is_file():
        start = replace(start, run=run, recorded=RunDirectory(run).config())
    if start.given is None and start.network and start.network["library"] == OWN:
        raise UserError(
            f"{path} holds the weights of a network that was given in Python, {start.network['name']}; pass "
            "`model=MODULE:FUNCTION`, the function that returns such a network (in Python: the network itself)"
        )
    return start


def _checkpoint_of(run: RunDirectory) -> Path:
    """The checkpoint of a run, or of its last stage: the selected one, where one was selected."""
    for name in (BEST, LATEST):
        if (run.checkpoints / name).is_file():
            return run.checkpoints / name
    for stage in ("adapt", "pretrain"):
        if (run.path / stage / CONFIG).is_file():
            return _checkpoint_of(RunDirectory(run.path / stage))
    raise UserError(f"{run.path} holds no checkpoint; give a checkpoint or a run directory")


def inherited(config: StartedConfig, start: TrainedModel) -> StartedConfig:
    """The configuration with the settings of the model's run, which it must not contradict. For a checkpoint without a
    run one line reports the assumptions."""
    if start.is_whole:
        own = {"arch": start.checkpoint} if start.checkpoint == config.arch else {}
        config.replace(**dict.fromkeys(own)).refuse_of_a_network()
        kept = {**{name: setting.default for name, setting in settings_of(ModelConfig).items()}, **own}
        return config.inherit(start.recorded, start.checkpoint).replace(**kept)
    if start.recorded is None and start.checkpoint != IMAGENET and not config.quiet:
        assumed = [f"{name} {ASSUMED[name]}" for name in ("arch", "image_size") if getattr(config, name) is None]
        if assumed:
            line = f"{start.checkpoint} lies in no run directory; assumed: {', '.join(assumed)}"
            start.notes.append(line.replace("()", "none"))
    return config.inherit(start.recorded, start.checkpoint)


def load_classifier(config: AdaptConfig | PredictConfig, start: TrainedModel) -> Classifier:
    """The model in a checkpoint, with as many classes as its head has."""
    if start.is_whole:
        shape = open_arrays(str(config.root)).image(0).shape if config.data == ARRAYS else None  # type: ignore[union-attr]
        return _whole(start, shape)
    model = load(
        start.checkpoint,
        config.arch or ASSUMED["arch"],
        len(start.classes or ()) or None,
        arch_options=parse_options(config.arch_option or ()),
        pool=not config.no_pool,
        bottleneck_dropout=config.bottleneck_dropout or 0.0,
        scratch=config.scratch,
        pretrained_weights=config.pretrained_weights,
    )
    while start.notes:
        say(f"tllib-ancon: {start.notes.pop()}", file=sys.stderr)
    return model


def _whole(start: TrainedModel, shape: Sequence[int] | None) -> Classifier:
    """The network that was given, or that its record builds, with the weights of the checkpoint."""
    record = start.network or {}
    network = build(record) if start.given is None else copy.deepcopy(start.given).float()
    if Path(start.checkpoint).is_file():
        state = without_prefix(load_state_dict(start.checkpoint), network)
        load_into(network, state, f"checkpoint {start.checkpoint}")
    shape = record.get("images", shape)
    probe = None if shape is None else torch.zeros(2, *shape)
    model = as_classifier(network, record.get("head"), probe)
    if known := record.get("preprocessing", model.preprocessing and asdict(model.preprocessing)):
        known = Preprocessing(**{**known, "mean": tuple(known["mean"]), "std": tuple(known["std"])})
    model.preprocessing = known
    return model


def _require_same_classes(start: TrainedModel, domain: Domain) -> None:
    """Raise an error for a model of a run whose classes differ from the domain's, or in another order."""
    for label, (there, here) in enumerate(zip(start.classes or (), domain.classes, strict=False)):
        known = start.recorded is not None or there in domain.classes  # else it may be another word for the same
        if str(label) not in (there, here) and there != here and known:
            raise UserError(
                f"checkpoint {start.checkpoint} is of another dataset: it was trained with {there!r} as class {label}, "
                f"which is {here!r} in domain {domain.name}"
            )
    folders = (start.recorded or {}).get("inputs", {}).get("class_folders", {})
    require_same_order(class_folders(domain.paths, domain.labels), folders, domain.name, f"the run {start.run}")
