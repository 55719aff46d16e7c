"""A trained model that a stage starts from: where it lies, the run that trained it, and its network."""

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.data.class_folders import subfolders
from tllib_ancon.data.domain import Domain, numbered, require_same_order
from tllib_ancon.data.labels import counted_from_one
from tllib_ancon.data.lists import read_class_names
from tllib_ancon.data.open import open_arrays
from tllib_ancon.data.tensors import ARRAYS, Layout
from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.measures.indicators import SourceStatistics
from tllib_ancon.models.checkpoints import load_into, load_state_dict, without_prefix
from tllib_ancon.models.classifier import Classifier, as_classifier, require_network
from tllib_ancon.models.copies import copy_of
from tllib_ancon.models.foundation import load_named
from tllib_ancon.models.networks import IMAGENET, OWN, build, imported, load, parse_options, recipe_of
from tllib_ancon.models.outputs import LogitsReader
from tllib_ancon.runtime.errors import UserError, reading
from tllib_ancon.runtime.text import say
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.resolve import ASSUMED, of_the_model
from tllib_ancon.training.run import BEST, CHECKPOINTS, CONFIG, LATEST, STATISTICS, RunDirectory


@dataclass(frozen=True)
class TrainedModel:
    """A trained model, and the run that trained it, where it lies in a run directory.

    Attributes:
        checkpoint: the file, ``imagenet`` or the name of a library's model; empty for the caller's own module
        recorded: ``config.json`` of that run
        given: network that takes the checkpoint's weights if no record builds it, or the caller's own module
        names: names of the classes that are given, in the order of the labels
    """

    checkpoint: str = ""
    run: Path | None = None
    recorded: Mapping[str, Any] = field(default_factory=dict)
    given: nn.Module | None = None
    names: list[str] | None = None

    @property
    def classes(self) -> list[str] | None:
        names: list[str] | None = self.names or self.recorded.get("inputs", {}).get("classes")
        return names

    @property
    def record(self) -> dict[str, Any]:
        """What the run recorded of a whole network, by :func:`network_record`; empty if it did not."""
        old = {"library": OWN, "name": self.recorded.get("inputs", {}).get("model")}  # of version 0.1, made in Python
        return self.recorded.get("network") or (old if old["name"] else {})

    @property
    def statistics(self) -> SourceStatistics | None:
        if self.run is None or Path(self.checkpoint).name != BEST or not (path := self.run / STATISTICS).is_file():
            return None
        with reading(path, "statistics of a source", "; remove it to continue without them"):
            read = json.loads(path.read_bytes())
            return SourceStatistics(*(read[one.name] for one in fields(SourceStatistics)))

    @property
    def is_whole(self) -> bool:
        """Whether its network is one that was given as an object, or that a record builds."""
        return self.given is not None or bool(self.record)

    def load(self, config: AdaptConfig | PredictConfig) -> nn.Module:
        """The network with its weights: a copy of the caller's module, else a classifier."""
        if not self.is_whole:
            return self._rebuilt(config)
        network = build(self.record) if self.given is None else copy_of(self.given).float()
        if not self.checkpoint:
            return network
        if Path(self.checkpoint).is_file():
            state = without_prefix(load_state_dict(self.checkpoint), network)
            load_into(network, state, f"checkpoint {self.checkpoint}")
        shape = self.record.get("images")
        if shape is None and config.data == ARRAYS:
            shape = open_arrays(str(config.root)).image(0).shape  # type: ignore[union-attr]
        probe = None if shape is None else torch.zeros(2, *shape)
        if probe is not None and (layout := self.record.get("layout")):
            network.register_forward_pre_hook(Layout(**layout), with_kwargs=True)
            probe = probe.long()
        output = self.record.get("output")
        reader = None if output is None else LogitsReader(**{**output, "path": tuple(output["path"])})
        model = as_classifier(network, self.record.get("head"), probe, reader=reader)
        if "preprocessing" in self.record:
            known = self.record["preprocessing"]
            values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in (known or {}).items()}
            model.preprocessing = Preprocessing(**values) if known else None
        return model

    def _rebuilt(self, config: AdaptConfig | PredictConfig) -> Classifier:
        settings = of_the_model(config, self)
        model = load(
            self.checkpoint,
            settings["arch"],
            len(self.recorded.get("inputs", {}).get("classes", ())) or None,
            arch_options=parse_options(settings["arch_option"]),
            pool=not settings["no_pool"],
            bottleneck_dropout=settings["bottleneck_dropout"],
            scratch=config.scratch,
            pretrained_weights=config.pretrained_weights,
        )
        assumed = [f"{name} {ASSUMED[name]}" for name in ("arch", "image_size") if getattr(config, name) is None]
        if assumed and self.run is None and self.checkpoint != IMAGENET and not config.quiet:
            line = f"tllib-ancon: {self.checkpoint} lies in no run directory; assumed: {', '.join(assumed)}"
            say(line, file=sys.stderr)
        return model


def find(config: AdaptConfig | PredictConfig, network: Any = None) -> TrainedModel:
    """Find the model that settings name, or the caller's ``network``, which takes the weights of a checkpoint."""
    names = None if config.class_names is None else read_class_names(Path(config.class_names))
    if network is not None and (config.checkpoint is None or isinstance(config, AdaptConfig)):
        for name in ("start", "checkpoint", "model"):
            if getattr(config, name, None) is not None:
                raise UserError(f"give a model or `{name}`, not both")
        return TrainedModel(given=require_network(network, learns=isinstance(config, AdaptConfig)), names=names)
    if config.checkpoint is not None:
        return replace(find_checkpoint(config.checkpoint, network or config.model), names=names)
    if ":" not in str(config.arch):
        raise UserError("no model to start from: pass `checkpoint`, or an `arch` that begins with hf: or open_clip:")
    network, names = load_named(str(config.arch), names, config.prompts, config.allow_download)
    return TrainedModel(str(config.arch), given=network, names=names)


def find_checkpoint(checkpoint: str, model: str | nn.Module | None = None) -> TrainedModel:
    """The trained model of a checkpoint or a run directory; ``model`` is its network, or names a function."""
    if checkpoint == IMAGENET:
        return TrainedModel(checkpoint)
    path = Path(checkpoint)
    if not path.exists():
        raise UserError(f"checkpoint {checkpoint} is not a file; give a checkpoint or a run directory")
    if path.is_dir():
        kept = [file for name in (BEST, LATEST) if (file := path / CHECKPOINTS / name).is_file()]
        if not kept:
            raise UserError(f"{path} holds no checkpoint; give a checkpoint or a run directory")
        path = kept[0]
    run = path.resolve().parent.parent
    start = TrainedModel(str(path), given=imported(model) if isinstance(model, str) else model)
    if (run / CONFIG).is_file():
        start = replace(start, run=run, recorded=RunDirectory(run).config())
    if start.given is None and start.record.get("library") == OWN:
        raise UserError(
            f"{path} holds the weights of a network that was given in Python, {start.record['name']}; pass "
            "`model=MODULE:FUNCTION`, the function that returns such a network (in Python: the network itself)"
        )
    return start


def network_record(classifier: Any, images: Tensor, preprocessing: Preprocessing | None) -> dict[str, Any]:
    """Record of a whole network beside its weights: recipe, head, shape of the images, and its preprocessing."""
    return {
        **recipe_of(classifier, images),
        "head": classifier.head_name,
        "output": asdict(classifier.reader),
        "images": list(images.shape[1:]),
        "preprocessing": preprocessing and asdict(preprocessing),
    }


def record_of(*domains: Domain) -> dict[str, Any]:
    """What ``config.json`` records of images: a run continues on the same ones alone."""
    first = domains[0]
    for domain in domains:
        require_same_order(first.class_folders, domain.class_folders, first.name, domain.name)
    return {
        "classes": list(first.classes),
        "class_folders": first.class_folders,
        "images": {
            domain.name: {"number": len(domain), "sha256": domain.fingerprint(), "skipped": list(domain.skipped)}
            for domain in domains
        },
    }


def with_classes(target: Domain, num_classes: int, start: TrainedModel) -> Domain:
    """The target with as many classes as the model's head. Other classes than those of ``start`` are an error."""
    if num_classes == 1:
        raise UserError(
            f"checkpoint {start.checkpoint} has one output, a logit for a sigmoid. Pass the network in Python, or "
            "give its head two outputs (0, z)"
        )
    for label, (there, here) in enumerate(zip(start.classes or (), target.classes, strict=False)):
        known = start.run is not None or there in target.classes  # else it may be another word for the same
        if str(label) not in (there, here) and there != here and known:
            raise UserError(
                f"checkpoint {start.checkpoint} is of another dataset: it was trained with {there!r} as class {label}, "
                f"which is {here!r} in domain {target.name}. Give a checkpoint or a target with the same classes"
            )
    folders = start.recorded.get("inputs", {}).get("class_folders", {})
    require_same_order(target.class_folders, folders, target.name, f"the run {start.run}")
    numbers = list(target.classes) == numbered(len(target.classes))
    if target.classes and not numbers and len(target.classes) != num_classes:
        raise _other_number(target, num_classes, start)
    return target if len(target.classes) == num_classes else replace(target, classes=numbered(num_classes))


def _other_number(target: Domain, num_classes: int, start: TrainedModel) -> UserError:
    """The error for a dataset whose classes are not as many as the model's."""
    name = f"checkpoint {start.checkpoint}" if start.checkpoint else "the model"
    if start.names is not None and len(start.names) != num_classes:
        return UserError(
            f"`class_names` has {len(start.names)} names, and {name} has {num_classes} classes; write the name of each "
            "class on a line, in the order of the labels"
        )
    advice = "pass `class_names=FILE`, the names of the model's classes in the order of its labels"
    if target.labels is not None and {*subfolders(target)} == {*target.classes}:
        advice += ", or `data=Folder` to read images without labels"
    return UserError(f"{name} has {num_classes} classes, the dataset has {len(target.classes)}; {advice}")


def note_on_labels(target: Domain, progress: Progress) -> None:
    """Print a line where no image has label 0 and no class folder says that this is right."""
    if target.labels is None or target.class_folders:
        return
    line = counted_from_one(target.labels, target.num_classes)
    if line is not None:
        progress.line(line)


def sha256_of_tensors(state: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in state.items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
