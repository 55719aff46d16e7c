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
from tllib_ancon.data.hugging_face import HUGGING_FACE
from tllib_ancon.data.images import jpeg
from tllib_ancon.data.labels import counted_from_one
from tllib_ancon.data.lists import read_image_list
from tllib_ancon.data.open import as_domain
from tllib_ancon.measures.disagreement import Side
from tllib_ancon.models.class_names import class_names_of
from tllib_ancon.models.networks import IMAGENET
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.runtime.text import csv_text, say
from tllib_ancon.training import inputs
from tllib_ancon.training.card import write_card
from tllib_ancon.training.checkpointing import read_arrays, write_arrays, write_weights
from tllib_ancon.training.class_names import with_classes
from tllib_ancon.training.devices import using_processor
from tllib_ancon.training.files import sha256, write_bytes
from tllib_ancon.training.not_finite import predicted_classes, require_predictions
from tllib_ancon.training.predict import predict
from tllib_ancon.training.predictor import Predictor
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.resolve import Transform
from tllib_ancon.training.run import BEST, CERTIFICATE, CERTIFIED, CONFIG, SOURCE, RunDirectory
from tllib_ancon.training.source import Source, open_checkpoint
from tllib_ancon.training.teaching import Labels, certifying, names_of

CHOSEN = ("root", "batch_size", "workers", "threads", "quiet")
"""Settings that stand for those of the run."""
ANSWERS = "answers.jsonl"
FILE = "certify.npz"
"""The classes that both models predict, in the run directory: a later session need not compute them again."""


def certify_run(config: CertifyConfig, say: Callable[[str], None] = say) -> Certificate:
    """Decide by a few labels whether the adapted model of a run is better than its source model, and keep the better.

    Answers come from ``answers`` or ``labels`` and then from the page. ``RUN/answers.jsonl`` stores them, and the next
    call resumes there. It writes ``RUN/certificate.json`` and ``RUN/checkpoints/certified.pth``.
    """
    with using_processor(config.threads), ModelPair(config) as pair:
        session = pair.session()
        session.answer_all(_given(config, pair, session.comparison, say))
        if config.questions is not None:
            _write_questions(session, Path(config.questions))
        if config.page and session.question:
            from tllib_ancon.certificate.page import serve  # needs what not everyone has installed

            serve(session, port=config.port, say=say)
        certificate = pair.conclude(session)
    for line in certificate["words"]:
        say(line)
    say(f"{certificate['checkpoint']}: the {'adapted' if certificate['returned'] == 'adapted' else 'source'} model")
    return certificate


def _write_questions(session: Session, file: Path) -> None:
    folder, rows = file.with_name(f"{file.stem}-images"), [COLUMNS]
    folder.mkdir(exist_ok=True)
    for number in range(len(session.answers), len(session)):
        position, name, _ = session.asked(number)
        copy = folder / f"{number + 1:06}-{opaque(name)}"
        write_bytes(copy, jpeg(session.image(position)))
        rows.append([f"{folder.name}/{copy.name}", ""])
    write_bytes(file, csv_text(rows).encode())


def certify(
    source: nn.Module | str | Path,
    adapted: nn.Module | str | Path,
    images: Any,
    *,
    labels: npt.ArrayLike | None = None,
    classes: Sequence[str] | None = None,
    evaluation_transform: Transform | None = None,
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
        evaluation_transform: as for :func:`tllib_ancon.predict`
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
    decoding = PredictConfig(**settings).decoding
    images = as_domain(images, labels=False, decoding=decoding)
    start, other = (
        predict(model, images, evaluation_transform=evaluation_transform, **settings) for model in (source, adapted)
    )
    require_predictions(start.labels, images, "source model")
    require_predictions(other.labels, images, "adapted model")
    names = list(map(str, start.indices if start.paths is None else start.paths))
    num_classes = start.probabilities.shape[1]
    told = class_names_of(source, num_classes) if isinstance(source, nn.Module) else None
    comparison = Comparison(start.labels, other.labels, names, classes or told or numbered(num_classes))
    session = Session(comparison, delta, margin, seed, None if log is None else Path(log), side)
    session.image = images.image
    answers = known(labels, comparison)
    line = counted_from_one(np.array([*answers.values()]), len(comparison.classes))
    if line is not None:
        Progress(bool(settings.get("quiet"))).line(line)
    session.answer_all(answers)
    return session


def known(given: npt.ArrayLike | None, comparison: Comparison) -> dict[int, Answer]:
    if given is None:
        return {}
    names = comparison.classes
    labels = checked_classes("`labels`", given, len(comparison), len(names), unknown=True, names=names)
    return {position: label for position, label in enumerate(labels.tolist()) if label >= 0}


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
        self.config, self.given, self.transform = config, model or config.model, transform
        if images is not None:
            self.everything = images
        for stage in ("", "adapt"):  # of `adapt`, or of `script`
            self.directory = RunDirectory(Path(config.run, stage))
            recorded = self.directory.config() if (self.directory.path / CONFIG).is_file() else {}
            if recorded.get("command") == "adapt":
                break
        else:
            raise UserError(f"{config.run} holds no adaptation; give the run directory of adapt or script")
        run = f"the run in {self.directory.path}"
        if not self.directory.finished:
            raise UserError(f"{run} is not finished; give its command again first")
        if images is None and config.root is None:
            _require_images(run, recorded)
        self.start = open_checkpoint(config.checkpoint or _start(self.directory, recorded), self.given)
        start, of_networks = self.start.checkpoint, settings_of(ModelConfig) if self.start.is_whole else {}
        taken = {name: recorded[name] for name in settings_of(PredictConfig).keys() - of_networks if name in recorded}
        taken |= {name: getattr(config, name) for name in CHOSEN if getattr(config, name) is not None}
        taken["views"] = 1 if recorded.get("no_hflip") else recorded.get("views")  # of the adaptation, for both models
        self.settings = PredictConfig(**{**taken, "override": True, "checkpoint": start})
        self.checkpoints = {"start": start, "adapted": str(self.directory.checkpoints / BEST)}
        self._num_classes, self._recorded = len(recorded["inputs"]["classes"]), recorded

    @cached_property
    def everything(self) -> Domain:
        names = self.start.classes
        if self.settings.data is None:
            opened = as_domain(str(self.settings.root), classes=names, decoding=self.settings.decoding)
        else:
            opened = inputs.open_images(self.settings, self.settings.target, classes=names)
        return with_classes(opened, self._num_classes, Source())

    @cached_property
    def kept(self) -> Labels | None:
        """Of a run that labels taught, the positions of the images that certify it."""
        return certifying(self._recorded, len(self.everything))

    @cached_property
    def images(self) -> Domain:
        """The images that certify: all, or all but the ones that may train."""
        return self.everything if self.kept is None else self.everything.subset(self.kept)

    @cached_property
    def names(self) -> list[str]:
        return names_of(self.images, self.settings.root)

    def __enter__(self) -> ModelPair:
        self.directory.claim()
        return self

    def __exit__(self, *_: object) -> None:
        self.directory.close()

    def session(self) -> Session:
        config, log = self.config, self.directory.path / ANSWERS
        start, adapted = self.classes()
        comparison = Comparison(start, adapted, self.names, self.images.classes)
        ranks = None
        if self.kept is not None:  # one order of all images: answers about the first of them certify every such run
            ranks = np.argsort(np.random.default_rng(config.seed).permutation(len(self.everything)))[self.kept]
        session = Session(comparison, config.delta, config.margin, config.seed, log, config.side, ranks=ranks)
        session.image = self.images.image
        return session

    def conclude(self, session: Session) -> Certificate:
        certificate = session.certificate
        certificate["words"] = in_words(certificate)
        path = self.directory.checkpoints / CERTIFIED
        write_weights(path, self.predictor(certificate["returned"]).network.state_dict())
        certificate["checkpoint"] = str(path)
        write_card(self.directory, self.directory.result(), certificate)
        self.directory.write_json(CERTIFICATE, certificate)
        return certificate

    def classes(self) -> list[Classes]:
        """The classes that both models predict, each (N,); the run directory caches them."""
        names = "\n".join(self.names).encode(errors="surrogateescape")
        files = (file if file == IMAGENET else sha256(Path(file)) for file in self.checkpoints.values())
        origin = np.array([*files, hashlib.sha256(names).hexdigest()])
        path = self.directory.path / FILE
        cached = read_arrays(path, ("origin", *self.checkpoints)) if path.is_file() else {}
        if {*cached} != {"origin", *self.checkpoints} or not np.array_equal(cached["origin"], origin):
            logits = {which: self.predictor(which).logits(self.images) for which in self.checkpoints}
            cached = {"origin": origin, **{which: predicted_classes(rows) for which, rows in logits.items()}}
            require_predictions(cached["start"], self.images, "source model")
            require_predictions(cached["adapted"], self.images, "adapted model")
            write_arrays(path, cached)
        return [cached[which] for which in self.checkpoints]

    def predictor(self, which: str) -> Predictor:
        config = self.settings.replace(checkpoint=self.checkpoints[which], model=self.config.model, class_names=None)
        if self.everything.holds_tensors or self.transform is not None:  # the run recorded what had no effect
            fields = PredictConfig.model_fields
            without_effect = [name for name in (*inputs.PREPARING, *inputs.READING) if name in fields]
            config = config.replace(**{name: fields[name].default for name in without_effect})
        return Predictor(config, None if isinstance(self.given, str) else self.given, self.transform)


def _require_images(run: str, recorded: Mapping[str, Any]) -> None:
    """Raise an error if the images of a run are not where the run recorded them."""
    root, is_on_disk = recorded.get("root"), not str(recorded.get("data")).startswith(HUGGING_FACE)
    if root is None:
        raise UserError(f"{run} does not know where its images are; give their folder as `root`")
    if is_on_disk and not Path(root).exists():
        raise UserError(f"the images of {run} are gone: there is no {root}; give their folder as `root`")


def _start(directory: RunDirectory, recorded: Mapping[str, Any]) -> str:
    """The source model's checkpoint, the very file that the run started from."""
    kept = str(directory.checkpoints / SOURCE)  # of a model that was given in Python
    checkpoint = str(recorded.get("checkpoint") or kept)
    if checkpoint == IMAGENET:
        return checkpoint
    path = Path(checkpoint)
    if not path.exists():
        raise UserError(
            f"the source model of {directory.path} is gone: there is no {checkpoint}; say where it is by `checkpoint`"
        )
    digest = recorded.get("inputs", {}).get("checkpoint_sha256")
    if not path.is_dir() and digest not in (None, sha256(path)):
        raise UserError(f"{path} is not the file that {directory.path} started from: its checksum differs. Restore it")
    return checkpoint


def _given(
    config: CertifyConfig, pair: ModelPair, comparison: Comparison, say: Callable[[str], None]
) -> dict[int, Answer]:
    if config.answers is not None:
        if pair.kept is None:
            return read_answers(Path(config.answers), comparison.names, comparison.classes, comparison.disagreements)
        names = names_of(pair.everything, pair.settings.root)
        said = read_answers(Path(config.answers), names, pair.everything.classes)
        asked = {int(place): int(pair.kept[place]) for place in comparison.disagreements}
        used = {place: said[position] for place, position in asked.items() if position in said}
        say(
            f"the {len(pair.kept):,} images that may not teach certify: of {len(said):,} answers "
            f"{len(said) - len(used):,} are of others, or of images on which both models agree"
        )
        return used
    if config.labels is None:
        return {}
    listed, labels = read_image_list(Path(config.labels), Path(str(pair.settings.root)), len(comparison.classes), True)
    paths = pair.images.paths
    if labels is None or paths is None:
        raise UserError(f"`labels` {config.labels}: expected a list with labels, and a run on files")
    known = dict(zip(listed, labels.tolist(), strict=True))
    return {int(at): known[paths[int(at)]] for at in comparison.disagreements if paths[int(at)] in known}
