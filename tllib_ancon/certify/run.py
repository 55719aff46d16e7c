"""The certificate of a run: which of its two models is kept."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tllib_ancon.certify.adapted_run import AdaptedRun, find_adapted_run
from tllib_ancon.certify.answers import HEADER, Answers, answers_of_labels, read_answers
from tllib_ancon.certify.certificate import Certificate, certificate_of, in_words
from tllib_ancon.certify.page import serve
from tllib_ancon.certify.session import Session
from tllib_ancon.config import CertifyConfig
from tllib_ancon.data.image_list import read_image_list
from tllib_ancon.errors import UserError
from tllib_ancon.training.files import write_whole
from tllib_ancon.training.lock import FolderLock
from tllib_ancon.training.reproducibility import using_threads
from tllib_ancon.training.run_directory import CERTIFICATE

ANSWERS = "answers.jsonl"


def certify_run(config: CertifyConfig, say: Callable[[str], None] = print) -> Certificate:
    """Decide by a few labels whether the adapted model of a run is better than its start, and keep the one to use.

    Answers come from ``answers`` or ``labels`` and then from the page, as far as each is asked for. They are kept in
    ``RUN/answers.jsonl``, where the next call goes on. It writes ``RUN/certificate.json`` and
    ``RUN/checkpoints/certified.pth``: the adapted model if it is certified better, else the start.

    Args:
        config (CertifyConfig): the run, the test, and where labels come from
        say (callable): called with the page's address, what was found and what was written

    Returns: the certificate (:func:`~tllib_ancon.certify.certificate.certificate_of`), with the ``checkpoint`` of the
        kept model

    Raises:
        UserError: no finished adaptation, a start model that is gone, models that are equal on all images, bad answers,
            a port in use
    """
    with using_threads(config.threads):
        return _certify(find_adapted_run(config), config, say)


def _certify(run: AdaptedRun, config: CertifyConfig, say: Callable[[str], None]) -> Certificate:
    lock = FolderLock(run.directory.path)
    try:
        comparison = run.compare()
        log = run.directory.path / ANSWERS
        session = Session(comparison, config.delta, config.margin, config.seed, log)
        session.answer_all(_answers(config, run, session))
        if config.questions is not None:
            write_questions(session, Path(config.questions))
        if config.page and not session.settled:
            serve(session, run.picture, config.port, say)
        certificate = certificate_of(session)
        kept = run.keep_certified(certificate["returned"] == "adapted")
        certificate["checkpoint"] = str(kept)
        run.directory.write_json(CERTIFICATE, certificate)
    finally:
        lock.release()
    for line in in_words(certificate):
        say(line)
    say(f"{kept}: the {certificate['returned']} model")
    return certificate


def write_questions(session: Session, path: Path) -> None:
    """Write the images whose classes would be asked, in their order, as a CSV file to be filled in."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows([name, ""] for name in session.upcoming(len(session)))
    content = text.getvalue().encode(errors="surrogateescape")
    write_whole(path, lambda file: file.write(content))


def _answers(config: CertifyConfig, run: AdaptedRun, session: Session) -> Answers:
    if config.answers is not None:
        return read_answers(Path(config.answers), session.comparison)
    if config.labels is not None:
        listed = read_image_list(Path(config.labels), Path(str(run.settings.root)), run.images.num_classes, True)
        if listed.labels is None or run.images.paths is None:
            raise UserError(f"`labels` {config.labels}: expected a list with labels, and a run on files")
        known = dict(zip(listed.paths, listed.labels.tolist(), strict=True))
        labels = np.array([known.get(path, -1) for path in run.images.paths])
        return answers_of_labels(labels, session.comparison)
    return {}
