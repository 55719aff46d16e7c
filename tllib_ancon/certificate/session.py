"""A labelling session: the images on which two models disagree, in random order, their answers and the certificate.

An answer to "which class is this?" is a class, ``"another"`` (neither class in question) or ``"cannot tell"``. For the
difference of accuracy a class counts +1 if it is the adapted model's, -1 if it is the source model's, else 0; the two
others count 0. So an image whose class the user cannot tell is one that no model gets right, a property of the image
that the order of the labels does not change: the guarantee holds for the accuracies counted so.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tllib_ancon.certificate.answers import ANOTHER, CANNOT_TELL, Answer
from tllib_ancon.data.image_files import load_image
from tllib_ancon.data.labels import checked_labels
from tllib_ancon.measures.disagreement import DisagreementTest, Side
from tllib_ancon.runs.files import read_json, write_json
from tllib_ancon.runtime.errors import UserError, named, reading
from tllib_ancon.runtime.text import Shown, showable
from tllib_ancon.runtime.types import Record

Classes = npt.NDArray[np.int64]
Certificate = dict[str, Any]
RESTORE = "restore it from a copy, or move it away to start again"


class Comparison:
    """Classes that a source model and an adapted model predict on the same N images, (N,) integers in [0, K).

    Attributes:
        disagreements: positions of the M images with two different predictions, ascending
    """

    def __init__(self, start: npt.ArrayLike, adapted: npt.ArrayLike, names: Sequence[str], classes: Sequence[str]):
        self.names = names
        self.classes = [showable(name) for name in classes]
        self.start = checked_labels("the source model's predictions", start, len(names), len(classes))
        self.adapted = checked_labels("the adapted model's predictions", adapted, len(names), len(classes))
        self.disagreements: Classes = np.flatnonzero(self.start != self.adapted)
        if not len(self.disagreements):
            raise UserError(
                f"nothing to certify: the source and the adapted model are equal on all {len(names):,} images",
                "adapt again",
            )

    def __len__(self) -> int:
        return len(self.names)

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256("\n".join([*self.names, *self.classes]).encode(errors="surrogateescape"))
        for classes in (self.start, self.adapted):
            digest.update(classes.astype("<i8").tobytes())
        return digest.hexdigest()[:16]


class _Question(NamedTuple):
    """The image whose class is asked; the predicted classes come in random order."""

    position: int
    name: str
    options: tuple[int, ...]


class Session(Shown):
    """Asks for the classes of the images on which two models disagree, until it is decided which model is better. Its
    length is M, the number of images in question.

    A :class:`~tllib_ancon.measures.disagreement.DisagreementTest` takes the labels in one random order. ``delta``,
    ``margin`` (a fraction of all images) and ``side`` are its arguments. ``seed`` decides the order of the
    questions. A session on the same file ``log`` resumes; without one nothing is stored.
    """

    def __init__(
        self,
        comparison: Comparison,
        delta: float = 0.05,
        margin: float = 0.0,
        seed: int = 0,
        log: str | Path | None = None,
        side: Side = "better",
    ):
        self.comparison = comparison
        self._settings = {"delta": delta, "margin": margin, "side": side, "seed": seed}
        generator = np.random.default_rng(seed)
        self._order = generator.permutation(comparison.disagreements)
        self._is_swapped = generator.random(len(self._order)) >= 0.5
        self.image: Callable[[int], Any] = lambda position: load_image(comparison.names[position])
        self.answers: list[Answer] = []
        self.test = self._tested()
        self._log: Path | None = None
        if log is not None:
            self._resume(Path(log))

    @property
    def _header(self) -> Record:
        """What a file of answers belongs to."""
        return {"predictions": self.comparison.fingerprint, **self._settings}

    def _resume(self, log: Path) -> None:
        """Give the answers in the file again, or begin it."""
        if log.exists():
            recorded = read_json(log, advice=RESTORE)
            for name, value in self._header.items():
                if recorded.get(name) != value:
                    raise UserError(
                        f"{log} was begun with {named(name)} {recorded.get(name)}, not {value}: a session cannot "
                        "change once labels are known",
                        "give the same, or move the file away to start again",
                    )
            with reading(log, "answers", RESTORE):
                for entry in recorded["answers"]:
                    self._replay(entry)
        self._log = log
        self._store(self.answers)

    def _replay(self, entry: Record) -> None:
        question = self.question
        if question is None or entry["image"] != question.name:
            raise ValueError(f"{entry['image']!r} is not the question at this place")
        self.answer(entry["answer"])

    def _store(self, answers: Sequence[Answer]) -> None:
        """Write the whole session: it is on the disk when this returns, or the file is as before."""
        if self._log is not None:
            names = [self.asked(place).name for place in range(len(answers))]
            entries = [{"image": name, "answer": answer} for name, answer in zip(names, answers, strict=True)]
            write_json(self._log, {**self._header, "answers": entries})

    def __len__(self) -> int:
        return len(self._order)

    @property
    def question(self) -> _Question | None:
        """What is asked now; None if nothing is."""
        if self.test.settled:
            return None
        return self.asked(len(self.answers))

    def asked(self, place: int) -> _Question:
        """The question at this place of the order of all, from 0 to M - 1."""
        position = int(self._order[place])
        options = (int(self.comparison.adapted[position]), int(self.comparison.start[position]))
        if self._is_swapped[place]:
            options = options[::-1]
        return _Question(position, self.comparison.names[position], options)

    def answer(self, answer: Answer) -> None:
        """Answer the question by a class from 0 to K - 1, ``"another"`` or ``"cannot tell"``. With a log, the answer is
        on the disk when this returns."""
        question = self.question
        if question is None:
            raise UserError(f"no question is left to answer: the session ended {self.test.verdict!r}", "start another")
        last = len(self.comparison.classes) - 1
        is_class = type(answer) is int and 0 <= answer <= last
        if not is_class and answer not in (ANOTHER, CANNOT_TELL):
            raise UserError(
                f"an answer must be a class from 0 to {last}, {ANOTHER!r} or {CANNOT_TELL!r}, got {answer!r}"
            )
        self._store([*self.answers, answer])
        self.answers.append(answer)
        adapted_is_right = answer == self.comparison.adapted[question.position]
        start_is_right = answer == self.comparison.start[question.position]
        self.test.update(int(adapted_is_right) - int(start_is_right))

    def answer_all(self, answers: Mapping[int, Answer]) -> int:
        """Answer the questions from a collection by the images' positions, up to the verdict or the first image without
        an answer; returns how many were answered. An answer after that one is not used: who picks the images that are
        labelled can pick the verdict."""
        for place, answer in enumerate(self.answers):
            position, name, _ = self.asked(place)
            new_answer = answers.get(position, answer)
            if new_answer != answer:
                raise UserError(
                    f"two answers for {name!r}: {self.described(answer)!r} before, now {self.described(new_answer)!r}",
                    "leave one of them out",
                )
        answered_before = len(self.answers)
        question = self.question
        while question is not None and question.position in answers:
            self.answer(answers[question.position])
            question = self.question
        return len(self.answers) - answered_before

    def undo(self) -> None:
        """Take the last answer back; its question is asked again. Once there is a verdict it stands."""
        if self.question is None or not self.answers:
            raise UserError(
                f"no answer can be taken back: there are {len(self.answers)}, and the verdict is {self.test.verdict!r}",
                f"a session with another {named('log')} begins again",
            )
        self._store(self.answers[:-1])
        self.answers.pop()
        self.test = self._tested(self.test.outcomes[:-1])

    @property
    def certificate(self) -> Certificate:
        """What was found so far, ready for JSON; accuracies and their differences are fractions of all images.

        verdict: "better", "worse" or "undecided", of the adapted model against the source model

        settled: whether further labels are of no use

        returned: "adapted" if better, else "source"

        difference, interval: mean outcome so far as a difference of accuracy (None before the first label), and an
        interval that is valid whenever labelling stops. Its error probability is δ, of each end if ``side`` is "better"

        labels, adapted_right, start_right, another, cannot_tell: numbers of answers

        images, disagreements, delta, margin, side, seed: the test
        """
        test = self.test
        cannot_tell = self.answers.count(CANNOT_TELL)
        return {
            "verdict": test.verdict,
            "settled": test.settled,
            "returned": "adapted" if test.verdict == "better" else "source",
            "difference": test.estimate if test.outcomes else None,
            "interval": list(test.interval),
            "labels": len(test.outcomes),
            "adapted_right": test.outcomes.count(1),
            "start_right": test.outcomes.count(-1),
            "another": test.outcomes.count(0) - cannot_tell,
            "cannot_tell": cannot_tell,
            "images": len(self.comparison),
            "disagreements": len(self),
            **self._settings,
        }

    @property
    def words(self) -> list[str]:
        """What was found so far, in a line or two."""
        certificate = self.certificate
        lines = [_verdict_in_words(certificate)]
        if certificate["verdict"] == "undecided" and certificate["settled"]:
            margin = certificate["margin"]
            lines.append(f"further labels decide nothing: the difference is within the margin of {margin:g}")
        return lines

    def __repr__(self) -> str:
        return "\n".join(self.words)

    def described(self, answer: Answer) -> str:
        if isinstance(answer, int):
            return self.comparison.classes[answer]
        return answer

    def _tested(self, outcomes: Iterable[int] = ()) -> DisagreementTest:
        settings: Record = {name: value for name, value in self._settings.items() if name != "seed"}
        test = DisagreementTest(**settings, disagreements=len(self), images=len(self.comparison))
        for outcome in outcomes:
            test.update(outcome)
        return test


def _verdict_in_words(certificate: Certificate) -> str:
    verdict = certificate["verdict"]
    decision = "not certified"
    if verdict != "undecided":
        decision = f"certified {verdict}"
    lower, upper = certificate["interval"]
    interval = f"between {100 * lower:+.1f} and {100 * upper:+.1f} points"
    if lower == upper:
        interval = f"{100 * lower:+.1f} points"
    wrong = f"wrong with probability {100 * certificate['delta']:g} % at most"
    if certificate["side"] == "better":
        wrong = f"each end {wrong}"
    return (
        f"{decision}: the adapted model's accuracy minus the source model's is {interval} ({wrong}); "
        f"{certificate['labels']:,} of {certificate['disagreements']:,} disagreements have a label, of "
        f"{certificate['images']:,} images"
    )
