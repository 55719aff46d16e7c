"""A finished adaptation: its start model, its adapted model, and what both say of the images it was adapted to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tllib_ancon.certify.comparison import Classes, Comparison
from tllib_ancon.config import CertifyConfig, PredictConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.domains import as_domain
from tllib_ancon.errors import UserError
from tllib_ancon.given_paths import IMAGENET
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.settings import settings_of
from tllib_ancon.training import inputs, pictures, starts
from tllib_ancon.training.files import sha256
from tllib_ancon.training.passes import device, evaluation_loader, predict_domain
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.run_directory import BEST, CERTIFIED, CHECKPOINTS, RunDirectory
from tllib_ancon.training.saved_predictions import read_arrays, write_arrays

FILE = "certify.npz"
"""The classes that both models predict, in the run directory: a later session need not compute them again."""
STAGES = ("", "adapt")
"""Where an adaptation lies in a run directory: of one stage, or of two."""


@dataclass(frozen=True)
class AdaptedRun:
    """Where both models of an adaptation are, and the images.

    Attributes:
        directory: of the adaptation, finished
        settings: network and pictures, as the run recorded them
        start: checkpoint of the start model, or ``imagenet``
        num_classes: K
    """

    directory: RunDirectory
    settings: PredictConfig
    start: str
    num_classes: int

    @property
    def adapted(self) -> str:
        """Checkpoint of the adapted model, that of the selected epoch."""
        return str(self.directory.checkpoints / BEST)

    @cached_property
    def images(self) -> Domain:
        """What was adapted to, with the names of the classes that are known."""
        names = starts.find_start(self.start).classes
        if self.settings.data is None:
            opened = as_domain(str(self.settings.root), classes=names)
        else:
            opened = inputs.open_images(self.settings, self.settings.target, classes=names)
        return inputs.with_classes(opened, self.num_classes)

    @property
    def names(self) -> list[str]:
        """Paths of the images below the folder of the data, or their positions where they are no files."""
        if self.images.paths is None:
            return [str(position) for position in self.images.positions]
        root = str(self.settings.root).rstrip("/") + "/"
        return [path.removeprefix(root) for path in self.images.paths]

    def picture(self, position: int) -> Image.Image:
        """The image that a person is shown.

        Raises:
            UserError: it cannot be read or is no picture
        """
        image = self.images.image(position)
        if not isinstance(image, Image.Image):
            raise UserError(f"image {position} is no picture")
        return image

    def compare(self) -> Comparison:
        """What both models say of the images.

        Raises:
            UserError: as :meth:`classes`; models that are equal on all images
        """
        return Comparison(*self.classes(), self.names, self.images.classes)

    def classes(self) -> tuple[Classes, Classes]:
        """The start model's and the adapted model's classes, each (N,); computed once and kept in the run directory.

        Raises:
            UserError: images or checkpoints that cannot be read
        """
        origin = np.array([_origin(self.start), _origin(self.adapted), _sha256_of(self.names)])
        path = self.directory.path / FILE
        kept = read_arrays(path, ("origin", "start", "adapted")) if path.is_file() else {}
        if not np.array_equal(kept.get("origin", ()), origin):
            kept = {"origin": origin, "start": self._classes(self.start), "adapted": self._classes(self.adapted)}
            write_arrays(path, kept)
        return kept["start"], kept["adapted"]

    def keep_certified(self, adapted: bool) -> Path:
        """Write ``certified.pth``: the adapted model's weights or the start model's, to be read as ``best.pth`` is."""
        weights = self._classifier(self.adapted if adapted else self.start).state_dict()
        self.directory.save(CERTIFIED, weights)
        return self.directory.checkpoints / CERTIFIED

    def _classifier(self, checkpoint: str) -> Classifier:
        return starts.start_classifier(self.settings, starts.find_start(checkpoint), self.num_classes)

    def _classes(self, checkpoint: str) -> Classes:
        model = self._classifier(checkpoint)
        settings = pictures.with_picture_defaults(self.settings, model.preprocessing)
        transform = pictures.image_transforms(settings, model.preprocessing, self.images).evaluation
        loader = evaluation_loader(self.images, transform, settings.batch_size, settings.workers)
        with Progress(settings.quiet).bar(Path(checkpoint).name, len(loader)) as bar:
            predictions = predict_domain(model.to(device()), _counted(loader, bar), device(), loader.num_images)
        return predictions.logits.argmax(dim=1).cpu().numpy()


def find_adapted_run(config: CertifyConfig) -> AdaptedRun:
    """The adaptation in a run directory, of one stage or of two.

    Raises:
        UserError: no finished adaptation; its start model or its images are not known, gone, or others
    """
    directory = _directory(Path(config.run))
    recorded = directory.config()
    if not directory.finished:
        raise UserError(f"the run in {directory.path} is not finished; give its command again first")
    if recorded.get("checkpoint") is None:
        raise UserError(
            f"the run in {directory.path} was made from a model in Python, which it does not keep; give the classes "
            "that both models predict to tllib_ancon.certify.session.Session"
        )
    if recorded.get("root") is None and config.root is None:
        raise UserError(f"the run in {directory.path} does not know where its images are; give their folder as `root`")
    start = starts.find_start(config.checkpoint or _start(directory, recorded)).checkpoint
    taken = {name: recorded[name] for name in settings_of(PredictConfig) if name in recorded}
    given = {name: getattr(config, name) for name in ("root", "batch_size", "workers", "threads", "quiet")}
    chosen = {name: value for name, value in given.items() if value is not None}
    settings = PredictConfig(**{**taken, **chosen, "override": True, "checkpoint": start})
    return AdaptedRun(directory, settings, start, len(recorded["inputs"]["classes"]))


def _directory(path: Path) -> RunDirectory:
    for stage in STAGES:
        directory = RunDirectory(path / stage)
        if (directory.path / "config.json").is_file() and directory.config().get("command") == "adapt":
            return directory
    raise UserError(f"{path} holds no adaptation; give the run directory of adapt, run or script")


def _start(directory: RunDirectory, recorded: Mapping[str, Any]) -> str:
    """The start model's checkpoint, the very file that the run started from, or the run directory that holds it."""
    checkpoint = str(recorded["checkpoint"])
    if checkpoint == IMAGENET:
        return checkpoint
    beside = directory.path.parent / "pretrain" / CHECKPOINTS / Path(checkpoint).name
    found = [path for path in (Path(checkpoint), beside) if path.exists()]
    if not found:
        raise UserError(
            f"the start model of {directory.path} is gone: there is no {checkpoint}; say where it is by `checkpoint`"
        )
    digest = recorded.get("inputs", {}).get("checkpoint_sha256")
    same = [path for path in found if path.is_dir() or digest in (None, sha256(path))]
    if not same:
        raise UserError(f"{found[0]} is not the file that {directory.path} started from: its checksum differs")
    return str(same[0])


def _origin(checkpoint: str) -> str:
    return checkpoint if checkpoint == IMAGENET else sha256(Path(checkpoint))


def _sha256_of(names: list[str]) -> str:
    return hashlib.sha256("\n".join(names).encode(errors="surrogateescape")).hexdigest()


def _counted(loader: Iterable[Any], bar: Any) -> Iterator[Any]:
    for batch in loader:
        yield batch
        bar.update()
