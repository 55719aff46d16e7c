"""The certificate of a run: which of its two models is better."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from tllib_ancon.certificate.answers import COLUMNS, read_answers
from tllib_ancon.certificate.model_pair import ModelPair, predicted_classes
from tllib_ancon.certificate.session import Certificate, Comparison, Session
from tllib_ancon.config.certify import CertifyConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.data.labels import checked_labels
from tllib_ancon.data.readers import Loader
from tllib_ancon.data.transforms import Transform
from tllib_ancon.measures.disagreement import Side
from tllib_ancon.models.output import Output
from tllib_ancon.models.references import Model
from tllib_ancon.opening.open import Opened
from tllib_ancon.runs.files import lock_folder, write_bytes
from tllib_ancon.runtime.devices import restoring_state
from tllib_ancon.runtime.errors import BadModel, BadSetting, named
from tllib_ancon.runtime.extras import require
from tllib_ancon.runtime.text import csv_text, say
from tllib_ancon.training.predict import open_to_predict


def certify_run(config: CertifyConfig) -> None:
    """Decide by a few labels whether the adapted model of a run is better than its source model, and keep the better.

    Answers come from ``answers`` and then from the page. ``RUN/answers.json`` stores them, and the next
    call resumes there. It writes ``RUN/certificate.json`` and ``RUN/checkpoints/certified.pth``.
    """
    if config.page:
        require(named("page"), "starlette", "uvicorn", extra="page")
    with restoring_state(config.threads):
        pair = ModelPair(config)
        with lock_folder(pair.directory.path):
            certificate = _certificate(config, pair)
    for line in certificate["words"]:
        say(line)
    say(f"{certificate['checkpoint']}: the {certificate['returned']} model")


def _certificate(config: CertifyConfig, pair: ModelPair) -> Certificate:
    session = pair.session()
    if config.answers is not None:
        compared = session.comparison
        session.answer_all(
            read_answers(Path(config.answers), compared.names, compared.classes, pair.settings.root or ".")
        )
    if config.questions is not None:
        _write_questions(session, Path(config.questions))
    if config.page and session.question is not None:
        from tllib_ancon.certificate.page import serve  # needs what not everyone has installed

        serve(session, config.port)
    return pair.conclude(session)


def _write_questions(session: Session, file: Path) -> None:
    """Write the open questions as a table, in their order."""
    names = [session.asked(place).name for place in range(len(session.answers), len(session))]
    content = csv_text([COLUMNS, *([name, ""] for name in names)]).encode()
    if file.exists() and file.read_bytes() != content:
        raise BadSetting(
            f"{named('questions', file)} exists and may hold labels, which would be lost",
            f"read them with {named('answers', file)}, without {named('questions')}, or give another file",
            setting="questions",
        )
    write_bytes(file, content)


def certify(  # noqa: PLR0913
    source: Model,
    adapted: Model,
    images: Any,
    *,
    labels: npt.ArrayLike | None = None,
    classes: Sequence[str] | None = None,
    evaluation_transform: Transform | None = None,
    loader: Loader | None = None,
    output: Output | None = None,
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
        classes: names of the K classes. Default: the names of the source model, else numbers
        evaluation_transform, loader, output: as for :func:`tllib_ancon.predict`
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
    requested = PredictConfig(**settings)
    hooks = (output, evaluation_transform, loader)
    with restoring_state(requested.threads):
        start = open_to_predict(source, images, requested.with_paths(checkpoint=source), False, *hooks)
        end = open_to_predict(adapted, start.images, requested.with_paths(checkpoint=adapted), False, *hooks)
        comparison = _comparison(start, end, classes or start.classes.distinct_names)
    session = Session(comparison, delta, margin, seed, log, side)
    session.image = start.images.image
    if labels is not None:
        _answer(session, labels)
    return session


def _answer(session: Session, labels: npt.ArrayLike) -> None:
    """Answer by the labels (N,) that are known."""
    comparison = session.comparison
    known = checked_labels(named("labels"), labels, len(comparison), len(comparison.classes), unknown=True)
    session.answer_all({position: label for position, label in enumerate(known.tolist()) if label >= 0})


def _comparison(start: Opened[PredictConfig], end: Opened[PredictConfig], classes: Sequence[str]) -> Comparison:
    """The classes that two models predict on the same images."""
    num_classes = start.classes.num_classes
    if end.classes.num_classes != num_classes:
        raise BadModel(
            f"the source model has {num_classes} classes and the adapted model {end.classes.num_classes}",
            "pass two models of the same classes",
        )
    if len(set(classes)) != num_classes:
        raise BadSetting(
            f"{named('classes')} has {len(set(classes))} different names and the models have {num_classes} classes",
            "give a name for each class",
            setting="classes",
        )
    images = start.images
    names = list(map(str, images.paths or images.positions))
    return Comparison(predicted_classes(start, "source model"), predicted_classes(end, "adapted model"), names, classes)
