"""The source model and the adapted model of a finished run, and its images."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tllib_ancon.certificate.session import Certificate, Classes, Comparison, Session
from tllib_ancon.config.certify import CertifyConfig
from tllib_ancon.config.data import DataConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.config.settings import defined, settings_of
from tllib_ancon.models.references.zoo import IMAGENET
from tllib_ancon.opening.open import Opened, open_images, open_model
from tllib_ancon.runs.directory import BEST, CERTIFICATE, CERTIFIED, CONFIG, SOURCE, RunDirectory
from tllib_ancon.runs.files import read_arrays, sha256, write_arrays, write_json
from tllib_ancon.runtime.errors import BadFile, UserError, named
from tllib_ancon.runtime.types import Options
from tllib_ancon.training.not_finite import require_predictions
from tllib_ancon.training.predict import predict_images

OVERRIDING = ("root", "model", "batch_size", "workers", "threads", "quiet", "loader")
"""Settings of this call that stand for those of the run, and its function that reads images, which no run calls."""
ANSWERS = "answers.json"
PREDICTED_CLASSES = "certify.npz"
"""The classes that both models predict, in the run directory: a later session need not compute them again."""


class ModelPair:
    """The source model and the adapted model of a finished adaptation, and its images."""

    def __init__(self, config: CertifyConfig):
        self.config = config
        self.directory = _adaptation_in(config.run)
        self.settings = self._settings_of_predictions()
        adapted_model = open_model(None, self.settings)
        source_model = adapted_model.with_weights_of(self._source_checkpoint(), self.settings)
        adapted = open_images(None, adapted_model, self.settings)
        source = open_images(adapted.images, source_model, self.settings)
        self.images = adapted.images
        self.opened = {"source": source, "adapted": adapted}

    def _settings_of_predictions(self) -> PredictConfig:
        """The adapted model, and the images that the run records, but for what this call sets."""
        if not self.directory.finished:
            raise UserError(f"the run in {self.directory.path} is not finished", "give its command again first")
        recorded = self.directory.config()
        settings: Options = {name: recorded.get(name) for name in (*settings_of(DataConfig), "cache")}
        overriding = {name: getattr(self.config, name) for name in OVERRIDING}
        checkpoint = str(self.directory.checkpoints / BEST)
        return PredictConfig(**{**settings, **defined(overriding), "checkpoint": checkpoint})

    def _source_checkpoint(self) -> str:
        """The checkpoint that this call names, else the very file that the run started from."""
        if self.config.checkpoint is not None:
            return self.config.checkpoint
        recorded = self.directory.config()
        checkpoint = str(recorded.get("checkpoint") or self.directory.checkpoints / SOURCE)
        path = Path(checkpoint)
        is_the_file = path.is_file() and recorded["inputs"].get("checkpoint_sha256") in (None, sha256(path))
        if not (is_the_file or path.is_dir() or checkpoint == IMAGENET):
            raise BadFile(
                f"{checkpoint} is missing or is not the file that {self.directory.path} started from",
                f"restore it, or say where it is by {named('checkpoint')}",
            )
        return checkpoint

    @cached_property
    def names(self) -> list[str]:
        """Paths of the images below the folder of the data, or their positions where they are no files."""
        if self.images.paths is None:
            return [str(position) for position in self.images.positions]
        folder = str(self.settings.root).rstrip("/") + "/"
        return [path.removeprefix(folder) for path in self.images.paths]

    def session(self) -> Session:
        config = self.config
        start, adapted = self.classes()
        comparison = Comparison(start, adapted, self.names, self.images.classes)
        log = self.directory.path / ANSWERS
        session = Session(comparison, config.delta, config.margin, config.seed, log, config.side)
        session.image = self.images.image
        return session

    def conclude(self, session: Session) -> Certificate:
        certificate = {**session.certificate, "words": session.words}
        self.directory.write_weights(CERTIFIED, self.opened[certificate["returned"]].classifier.state_dict())
        certificate["checkpoint"] = str(self.directory.checkpoints / CERTIFIED)
        write_json(self.directory.path / CERTIFICATE, certificate)
        return certificate

    def classes(self) -> tuple[Classes, Classes]:
        """The classes that the source and the adapted model predict, each (N,); the run directory caches them."""
        path = self.directory.path / PREDICTED_CLASSES
        origin = self._origin_of_classes()
        if path.is_file():
            cached = read_arrays(path)
            if np.array_equal(cached.get("origin", []), origin):
                return cached["start"], cached["adapted"]
        start = predicted_classes(self.opened["source"], "source model")
        adapted = predicted_classes(self.opened["adapted"], "adapted model")
        write_arrays(path, {"origin": origin, "start": start, "adapted": adapted})
        return start, adapted

    def _origin_of_classes(self) -> npt.NDArray[np.str_]:
        """Checksums of the models' files and of the images' names."""
        checksums = [opened.source.digest() for opened in self.opened.values()]
        names = "\n".join(self.names).encode(errors="surrogateescape")
        return np.array([*checksums, hashlib.sha256(names).hexdigest()])


def predicted_classes(opened: Opened[PredictConfig], model: str) -> Classes:
    """The class that a model predicts on each image, (N,)."""
    classes = predict_images(opened).labels
    require_predictions(classes, opened.images, model)
    return classes


def _adaptation_in(run: str) -> RunDirectory:
    """The directory of the adaptation: that of ``adapt`` itself, or its stage in that of ``script``."""
    for path in (Path(run), Path(run, "adapt")):
        directory = RunDirectory(path)
        if (path / CONFIG).is_file() and directory.config().get("command") == "adapt":
            return directory
    raise UserError(f"{run} holds no adaptation", "give the run directory of adapt or script")
