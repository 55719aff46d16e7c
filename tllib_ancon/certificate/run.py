"""The certificate of a run: which of its two models is better."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
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
from tllib_ancon.data.answers import COLUMNS, Answer, opaque, read_answers
from tllib_ancon.data.domain import Domain, checked_classes, numbered
from tllib_ancon.data.images import jpeg
from tllib_ancon.data.labels import counted_from_one
from tllib_ancon.data.layouts.hugging_face import HUGGING_FACE
from tllib_ancon.data.lists import read_image_list
from tllib_ancon.data.open import as_domain
from tllib_ancon.data.pixels import Decoding
from tllib_ancon.measures.disagreement import Side
from tllib_ancon.models.class_names import class_names_of
from tllib_ancon.models.loading import IMAGENET
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.runtime.extras import require
from tllib_ancon.runtime.text import csv_text, say
from tllib_ancon.training import inputs
from tllib_ancon.training.card import write_card
from tllib_ancon.training.checkpointing import read_arrays, write_arrays, write_weights
from tllib_ancon.training.class_names import with_classes
from tllib_ancon.training.devices import using_processor
from tllib_ancon.training.files import sha256, write_bytes
from tllib_ancon.training.image_transforms import PREPARING, READING, Transform
from tllib_ancon.training.not_finite import predicted_classes, require_predictions
from tllib_ancon.training.predict import Predictions, predict
from tllib_ancon.training.predictor import Predictor
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.run import BEST, CERTIFICATE, CERTIFIED, CONFIG, SOURCE, RunDirectory
from tllib_ancon.training.source import Source, open_checkpoint
from tllib_ancon.training.teaching import Labels, certifying, names_of

OVERRIDING = ("root", "batch_size", "workers", "threads", "quiet")
"""Settings that stand for those of the run."""
ANSWERS = "answers.jsonl"
PREDICTED_CLASSES = "certify.npz"
"""The classes that both models predict, in the run directory: a later session need not compute them again."""


def certify_run(config: CertifyConfig, say: Callable[[str], None] = say) -> Certificate:
    """Decide by a few labels whether the adapted model of a run is better than its source model, and keep the better.

    Answers come from ``answers`` or ``labels`` and then from the page. ``RUN/answers.jsonl`` stores them, and the next
    call resumes there. It writes ``RUN/certificate.json`` and ``RUN/checkpoints/certified.pth``.
    """
    if config.page:
        require("`page`", "starlette", "uvicorn", extra="page")
    with using_processor(config.threads), ModelPair(config) as pair:
        session = pair.session()
        session.answer_all(_answers_of(config, pair, session.comparison, say))
        if config.questions is not None:
            _write_questions(session, Path(config.questions))
        if config.page and session.question is not None:
            from tllib_ancon.certificate.page import serve  # needs what not everyone has installed

            serve(session, port=config.port, say=say)
        certificate = pair.conclude(session)
    for line in certificate["words"]:
        say(line)
    returned = "adapted" if certificate["returned"] == "adapted" else "source"
    say(f"{certificate['checkpoint']}: the {returned} model")
    return certificate


def _write_questions(session: Session, file: Path) -> None:
    folder = file.with_name(f"{file.stem}-images")
    folder.mkdir(exist_ok=True)
    rows = [COLUMNS]
    for number in range(len(session.answers), len(session)):
        question = session.asked(number)
        copy = folder / f"{number + 1:06}-{opaque(question.name)}"
        write_bytes(copy, jpeg(session.image(question.position)))
        rows.append([f"{folder.name}/{copy.name}", ""])
    write_bytes(file, csv_text(rows).encode())


def certify(  # noqa: PLR0913
    source: nn.Module | str | Path,
    adapted: nn.Module | str | Path,
    images: Any,
    *,
    labels: npt.ArrayLike | None = None,
    classes: Sequence[str] | None = None,
    evaluation_transform: Transform | None = None,
    head: str | None = None,
    delta: float = 0.05,
    margin: float = 0.0,
    seed: int = 0,
    log: str | Path | None = None,
    side: Side = "better",
    **settings: Any,
) -> Session:
    """Test by labels of a few images, on which two models disagree, whether adaptation helped.

    Args:
        source, adapted: the two models, as :func:`tllib_ancon.predict` takes them
        images: what was adapted to, N images, as for :func:`tllib_ancon.adapt`
        labels: (N,) true classes, -1 where none is known; they answer the questions in their order up to the first
            image without one, in place of a user
        classes: names of the K classes. Default: their numbers
        evaluation_transform, head: as for :func:`tllib_ancon.predict`
        delta: largest probability of a false verdict, for the verdicts of ``side``
        margin: difference of accuracy that does not matter, as a share of all images
        seed: of the order of the questions
        side: "better" if ``delta`` is of a false "better", and as much of a false "worse"; "both" if of both together
        log: file that stores the answers; a later call with it resumes the session. Default: none
        **settings: as for :func:`tllib_ancon.predict`

    Returns: a session. ``question`` is the image to label, None after the verdict; ``answer`` takes its class;
        ``certificate`` and ``print`` show the result so far

    Raises:
        UserError: models that agree on all images, or another number of labels than of images

    Example::

        >>> session = tllib_ancon.certify(model, result.model, "photos/")
        >>> while question := session.question:
        ...     session.answer(int(input(f"{question.name}, {question.options}: ")))
        >>> print(session)
    """
    target = as_domain(images, labels=False, decoding=Decoding.of(PredictConfig(**settings)))
    how = {"evaluation_transform": evaluation_transform, "head": head, **settings}
    start = _predictions_of(source, "source model", target, how)
    names = start.indices if start.paths is None else start.paths
    comparison = Comparison(
        start.labels,
        _predictions_of(adapted, "adapted model", target, how).labels,
        list(map(str, names)),
        classes or _class_names(source, start.probabilities.shape[1]),
    )
    session = Session(comparison, delta, margin, seed, log, side)
    session.image = target.image
    answers = answers_of_labels(labels, comparison)
    line = counted_from_one(np.array(list(answers.values())), len(comparison.classes))
    if line is not None:
        Progress(bool(settings.get("quiet"))).line(line)
    session.answer_all(answers)
    return session


def _predictions_of(
    model: nn.Module | str | Path, description: str, target: Domain, how: Mapping[str, Any]
) -> Predictions:
    """The predictions of one of the models; an error describes it where one is not finite."""
    predictions = predict(model, target, **how)
    require_predictions(predictions.labels, target, description)
    return predictions


def _class_names(model: nn.Module | str | Path, num_classes: int) -> Sequence[str]:
    names = None
    if isinstance(model, nn.Module):
        names = class_names_of(model, num_classes)
    return names or numbered(num_classes)


def answers_of_labels(labels: npt.ArrayLike | None, comparison: Comparison) -> dict[int, Answer]:
    """Position of an image -> its label, of labels (N,) with -1 where none is known."""
    if labels is None:
        return {}
    names = comparison.classes
    checked_labels = checked_classes("`labels`", labels, len(comparison), len(names), unknown=True, names=names)
    return {position: label for position, label in enumerate(checked_labels.tolist()) if label >= 0}


class ModelPair:
    """The source model and the adapted model of a finished adaptation, and its images; in a ``with`` statement its run
    directory is this process's alone."""

    def __init__(
        self,
        config: CertifyConfig,
        model: nn.Module | None = None,
        images: Domain | None = None,
        transform: Transform | None = None,
    ):
        self.config = config
        self.model = config.model if model is None else model
        self.transform = transform
        self.directory = _adaptation_in(config.run)
        self.recorded = self.directory.config()
        if not self.directory.finished:
            raise UserError(f"the run in {self.directory.path} is not finished; give its command again first")
        if images is None and config.root is None:
            _require_images(self.directory, self.recorded)
        self._passed_images = images
        checkpoint = config.checkpoint or _source_checkpoint(self.directory, self.recorded)
        self.start = open_checkpoint(checkpoint, self.model)
        self.settings = self._settings_of_predictions()
        self.checkpoints = {"start": self.start.checkpoint, "adapted": str(self.directory.checkpoints / BEST)}

    def _settings_of_predictions(self) -> PredictConfig:
        """The settings of the run, but for those that this call sets."""
        of_networks = settings_of(ModelConfig) if self.start.is_whole else {}
        names = [name for name in settings_of(PredictConfig) if name not in of_networks]
        settings = {name: self.recorded[name] for name in names if name in self.recorded}
        for name in OVERRIDING:
            value = getattr(self.config, name)
            if value is not None:
                settings[name] = value
        settings["views"] = 1 if self.recorded.get("no_hflip") else self.recorded.get("views")
        settings["override"] = True
        settings["checkpoint"] = self.start.checkpoint
        return PredictConfig(**settings)

    @cached_property
    def all_images(self) -> Domain:
        if self._passed_images is not None:
            return self._passed_images
        names = self.start.classes
        if self.settings.data is None:
            target = as_domain(str(self.settings.root), classes=names, decoding=Decoding.of(self.settings))
        else:
            target = inputs.open_images(self.settings, self.settings.target, classes=names)
        return with_classes(target, len(self.recorded["inputs"]["classes"]), Source())

    @cached_property
    def certifying_positions(self) -> Labels | None:
        """Of a run that labels taught, the positions of the images that certify it."""
        return certifying(self.recorded, len(self.all_images))

    @cached_property
    def images(self) -> Domain:
        """The images that certify: all, or all but the ones that may train."""
        if self.certifying_positions is None:
            return self.all_images
        return self.all_images.subset(self.certifying_positions)

    @cached_property
    def names(self) -> list[str]:
        return names_of(self.images, self.settings.root)

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
        session = Session(
            comparison, config.delta, config.margin, config.seed, log, config.side, ranks=self._ranks_of_images()
        )
        session.image = self.images.image
        return session

    def _ranks_of_images(self) -> Labels | None:
        """Ranks in one order of all images, so that answers about the first of them certify every run that labels
        taught; None of another run."""
        if self.certifying_positions is None:
            return None
        order = np.random.default_rng(self.config.seed).permutation(len(self.all_images))
        ranks: Labels = np.argsort(order)[self.certifying_positions]
        return ranks

    def conclude(self, session: Session) -> Certificate:
        certificate = session.certificate
        certificate["words"] = in_words(certificate)
        path = self.directory.checkpoints / CERTIFIED
        write_weights(path, self.predictor(certificate["returned"]).network.state_dict())
        certificate["checkpoint"] = str(path)
        write_card(self.directory, self.directory.result(), certificate)
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
        if self.all_images.holds_tensors or self.transform is not None:
            settings = _without_preparing(settings)
        network = None if isinstance(self.model, str) else self.model
        return Predictor(settings, network, self.transform)


def _without_preparing(settings: PredictConfig) -> PredictConfig:
    """The settings without those of images, which a run records even where they had no effect."""
    fields = PredictConfig.model_fields
    names = [name for name in (*PREPARING, *READING) if name in fields]
    return settings.replace(**{name: fields[name].default for name in names})


def _adaptation_in(run: str) -> RunDirectory:
    """The directory of the adaptation: that of ``adapt`` itself, or its stage in that of ``script``."""
    for path in (Path(run), Path(run, "adapt")):
        directory = RunDirectory(path)
        if (path / CONFIG).is_file() and directory.config().get("command") == "adapt":
            return directory
    raise UserError(f"{run} holds no adaptation; give the run directory of adapt or script")


def _require_images(directory: RunDirectory, recorded: Mapping[str, Any]) -> None:
    """Raise an error if the images of a run are not where the run recorded them."""
    run = f"the run in {directory.path}"
    root = recorded.get("root")
    if root is None:
        raise UserError(f"{run} does not know where its images are; give their folder as `root`")
    is_on_disk = not str(recorded.get("data")).startswith(HUGGING_FACE)
    if is_on_disk and not Path(root).exists():
        raise UserError(f"the images of {run} are gone: there is no {root}; give their folder as `root`")


def _source_checkpoint(directory: RunDirectory, recorded: Mapping[str, Any]) -> str:
    """The source model's checkpoint, the very file that the run started from."""
    checkpoint = recorded.get("checkpoint") or str(directory.checkpoints / SOURCE)  # the latter of a model in Python
    if checkpoint == IMAGENET:
        return IMAGENET
    path = Path(checkpoint)
    if not path.exists():
        raise UserError(
            f"the source model of {directory.path} is gone: there is no {checkpoint}; say where it is by `checkpoint`"
        )
    digest = recorded.get("inputs", {}).get("checkpoint_sha256")
    if not path.is_dir() and digest not in (None, sha256(path)):
        raise UserError(f"{path} is not the file that {directory.path} started from: its checksum differs. Restore it")
    return str(checkpoint)


def _answers_of(
    config: CertifyConfig, pair: ModelPair, comparison: Comparison, say: Callable[[str], None]
) -> dict[int, Answer]:
    """Position of an image -> its answer, by the files that the settings name."""
    if config.labels is not None:
        return _answers_in_list(Path(config.labels), pair, comparison)
    if config.answers is None:
        return {}
    file = Path(config.answers)
    if pair.certifying_positions is None:
        return read_answers(file, comparison.names, comparison.classes, comparison.disagreements)
    return _certifying_answers(file, pair, pair.certifying_positions, comparison, say)


def _certifying_answers(
    file: Path, pair: ModelPair, positions: Labels, comparison: Comparison, say: Callable[[str], None]
) -> dict[int, Answer]:
    """Of answers about all images, those about the disagreements at these positions, which may not teach."""
    names = names_of(pair.all_images, pair.settings.root)
    answers = read_answers(file, names, pair.all_images.classes)
    certifying_answers = {}
    for place in comparison.disagreements.tolist():
        position = int(positions[place])
        if position in answers:
            certifying_answers[place] = answers[position]
    say(
        f"the {len(positions):,} images that may not teach certify: of {len(answers):,} answers "
        f"{len(answers) - len(certifying_answers):,} are of others, or of images on which both models agree"
    )
    return certifying_answers


def _answers_in_list(file: Path, pair: ModelPair, comparison: Comparison) -> dict[int, Answer]:
    """The labels of an image list as answers."""
    root = Path(str(pair.settings.root))
    listed_paths, labels = read_image_list(file, root, len(comparison.classes), True)
    paths = pair.images.paths
    if labels is None or paths is None:
        raise UserError(f"`labels` {file}: expected a list with labels, and a run on files")
    label_of = dict(zip(listed_paths, labels.tolist(), strict=True))
    positions = comparison.disagreements.tolist()
    return {position: label_of[paths[position]] for position in positions if paths[position] in label_of}
