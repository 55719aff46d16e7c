"""The source model and the adapted model of a finished run, and its images."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from tllib_ancon.certificate.session import Certificate, Classes, Comparison, Session, in_words
from tllib_ancon.config.certify import CertifyConfig
from tllib_ancon.config.model import ModelConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.config.settings import settings_of
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.layouts.hugging_face import HUGGING_FACE
from tllib_ancon.data.transforms import Transform
from tllib_ancon.models.loading import IMAGENET
from tllib_ancon.opening.classes import ClassMap
from tllib_ancon.opening.images import open_by_settings, require_loader_of
from tllib_ancon.opening.source import open_checkpoint
from tllib_ancon.opening.transforms import PREPARING
from tllib_ancon.runs.directory import BEST, CERTIFICATE, CERTIFIED, CONFIG, SOURCE, RunDirectory
from tllib_ancon.runs.files import sha256
from tllib_ancon.runs.state import read_arrays, write_arrays, write_weights
from tllib_ancon.runtime.errors import BadImages, UserError, named
from tllib_ancon.runtime.types import Record
from tllib_ancon.training.not_finite import predicted_classes, require_predictions
from tllib_ancon.training.predict import AUGMENTING, Predictor

OVERRIDING = ("root", "batch_size", "workers", "threads", "quiet")
"""Settings that stand for those of the run."""
ANSWERS = "answers.jsonl"
PREDICTED_CLASSES = "certify.npz"
"""The classes that both models predict, in the run directory: a later session need not compute them again."""


class ModelPair:
    """The source model and the adapted model of a finished adaptation, and its images; in a ``with`` statement its run
    directory is this process's alone."""

    def __init__(
        self,
        config: CertifyConfig,
        model: nn.Module | None = None,
        images: ImageSource | None = None,
        transform: Transform | None = None,
    ):
        self.config = config
        self.model = config.model if model is None else model
        self.transform = transform
        self.directory = _adaptation_in(config.run)
        self.recorded = self.directory.config()
        if not self.directory.finished:
            raise UserError(f"the run in {self.directory.path} is not finished", "give its command again first")
        if images is None and config.root is None:
            root = self.recorded.get("root")
            is_on_hub = str(self.recorded.get("data")).startswith(HUGGING_FACE)
            if root is None or not (is_on_hub or Path(root).exists()):
                raise BadImages(
                    f"the images of the run in {self.directory.path} are not at {root}, which it records",
                    f"give their folder as {named('root')}",
                )
        self._passed_images = images
        checkpoint = config.checkpoint or _source_checkpoint(self.directory, self.recorded)
        self.start = open_checkpoint(checkpoint, self.model)
        self.settings = self._settings_of_predictions()
        self.checkpoints = {"start": self.start.checkpoint, "adapted": str(self.directory.checkpoints / BEST)}

    def _settings_of_predictions(self) -> PredictConfig:
        """The settings of the run, but for those that this call sets."""
        of_networks = {}
        if self.start.is_whole:
            of_networks = settings_of(ModelConfig)
        names = [name for name in settings_of(PredictConfig) if name not in {*of_networks, *AUGMENTING}]
        settings = {name: self.recorded[name] for name in names if name in self.recorded}
        for name in OVERRIDING:
            value = getattr(self.config, name)
            if value is not None:
                settings[name] = value
        settings["views"] = 1 if self.recorded.get("no_hflip") else self.recorded.get("views")
        settings["checkpoint"] = self.start.checkpoint
        settings["loader"] = self.config.loader  # what the run records is not imported
        return PredictConfig(**settings)

    @cached_property
    def images(self) -> ImageSource:
        if self._passed_images is not None:
            return self._passed_images
        target = open_by_settings(self.settings, self.settings.target, classes=self.start.classes)
        require_loader_of(self.recorded, target)
        classes = self.recorded["inputs"]["classes"]
        return ClassMap(len(classes), classes).label(target).domain

    @cached_property
    def names(self) -> list[str]:
        """Paths of the images below the folder of the data, or their positions where they are no files."""
        if self.images.paths is None:
            return [str(position) for position in self.images.positions]
        folder = str(self.settings.root).rstrip("/") + "/"
        return [path.removeprefix(folder) for path in self.images.paths]

    def __enter__(self) -> ModelPair:
        self.directory.claim()
        return self

    def __exit__(self, *_: object) -> None:
        self.directory.close()

    def session(self) -> Session:
        config = self.config
        start, adapted = self.classes()
        comparison = Comparison(start, adapted, self.names, self.images.classes)
        log = self.directory.path / ANSWERS
        session = Session(comparison, config.delta, config.margin, config.seed, log, config.side)
        session.image = self.images.image
        return session

    def conclude(self, session: Session) -> Certificate:
        certificate = session.certificate
        certificate["words"] = in_words(certificate)
        path = self.directory.checkpoints / CERTIFIED
        write_weights(path, self.predictor(certificate["returned"]).network.state_dict())
        certificate["checkpoint"] = str(path)
        self.directory.write_json(CERTIFICATE, certificate)
        return certificate

    def classes(self) -> tuple[Classes, Classes]:
        """The classes that the source and the adapted model predict, each (N,); the run directory caches them."""
        path = self.directory.path / PREDICTED_CLASSES
        origin = self._origin_of_classes()
        cached: dict[str, npt.NDArray[Any]] = {}
        if path.is_file():
            cached = read_arrays(path, ("origin", "start", "adapted"))
        if len(cached) < 3 or not np.array_equal(cached["origin"], origin):
            start = self._predicted_classes("start", "source model")
            adapted = self._predicted_classes("adapted", "adapted model")
            cached = {"origin": origin, "start": start, "adapted": adapted}
            write_arrays(path, cached)
        return cached["start"], cached["adapted"]

    def _origin_of_classes(self) -> npt.NDArray[np.str_]:
        """Checksums of the models' files and of the images' names."""
        checksums = [file if file == IMAGENET else sha256(Path(file)) for file in self.checkpoints.values()]
        names = "\n".join(self.names).encode(errors="surrogateescape")
        return np.array([*checksums, hashlib.sha256(names).hexdigest()])

    def _predicted_classes(self, which: str, description: str) -> Classes:
        classes = predicted_classes(self.predictor(which).logits(self.images))
        require_predictions(classes, self.images, description)
        return classes

    def predictor(self, which: str) -> Predictor:
        """The predictor of the model ``"start"`` or ``"adapted"``."""
        settings = self.settings.replace(checkpoint=self.checkpoints[which], model=self.config.model, class_names=None)
        if self.images.is_raw or self.transform is not None:
            fields = PredictConfig.model_fields  # a run records them even where they had no effect
            names = [name for name in PREPARING if name in fields]
            settings = settings.replace(**{name: fields[name].default for name in names})
        network = None
        if not isinstance(self.model, str):
            network = self.model
        return Predictor(settings, network, self.transform)


def _adaptation_in(run: str) -> RunDirectory:
    """The directory of the adaptation: that of ``adapt`` itself, or its stage in that of ``script``."""
    for path in (Path(run), Path(run, "adapt")):
        directory = RunDirectory(path)
        if (path / CONFIG).is_file() and directory.config().get("command") == "adapt":
            return directory
    raise UserError(f"{run} holds no adaptation", "give the run directory of adapt or script")


def _source_checkpoint(directory: RunDirectory, recorded: Record) -> str:
    """The source model's checkpoint, the very file that the run started from."""
    checkpoint = recorded.get("checkpoint") or str(directory.checkpoints / SOURCE)  # the latter of a model in Python
    if checkpoint == IMAGENET:
        return IMAGENET
    path = Path(checkpoint)
    digest = recorded.get("inputs", {}).get("checkpoint_sha256")
    is_the_file = path.is_file() and digest in (None, sha256(path))
    if not path.is_dir() and not is_the_file:
        raise UserError(
            f"{path} is missing or is not the file that {directory.path} started from",
            f"restore it, or say where it is by {named('checkpoint')}",
        )
    return str(checkpoint)
