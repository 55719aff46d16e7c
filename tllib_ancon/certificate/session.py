"""A labelling session: the images on which two models disagree, in random order, their answers and the certificate.

An answer to "which class is this?" is a class, ``"another"`` (neither class in question) or ``"cannot tell"``. For the
difference of accuracy a class counts +1 if it is the adapted model's, -1 if it is the source model's, else 0; the two
others count 0. So an image whose class the user cannot tell is one that no model gets right, a property of the image
that the order of the labels does not change: the guarantee holds for the accuracies counted so.
"""

import hashlib
import json
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tllib_ancon.data.answers import ANOTHER, CANNOT_TELL, Answer
from tllib_ancon.data.domain import checked_classes
from tllib_ancon.data.images import load_image
from tllib_ancon.measures.disagreement import DisagreementTest, Side, labels_needed
from tllib_ancon.runtime.errors import UserError, reading
from tllib_ancon.runtime.text import Shown, showable
from tllib_ancon.training.files import write_bytes

Classes = npt.NDArray[np.int64]
Certificate = dict[str, Any]

CHECKSUM = "crc32"
FAVOURING = (0.6, 0.7, 0.8)
"""Fractions of decisive disagreements in favour of the adapted model, for which it reports the labels needed."""
DECISIVE = (8.5, 10)
"""Prior counts of decisive disagreements and of all disagreements: the ratio of the 105 runs in
benchmarks/results/certification_grid.md."""


class Comparison:
    """Classes that a source model and an adapted model predict on the same N images, (N,) integers in [0, K).

    Attributes:
        disagreements: positions of the M images with two different predictions, ascending
    """

    def __init__(self, start: npt.ArrayLike, adapted: npt.ArrayLike, names: Sequence[str], classes: Sequence[str]):
        self.names, self.classes = names, [showable(name) for name in classes]
        self.start, self.adapted = (
            checked_classes(f"the {model} model's predictions", given, len(names), len(classes))
            for model, given in (("source", start), ("adapted", adapted))
        )
        self.disagreements: Classes = np.flatnonzero(self.start != self.adapted)
        if not len(self.disagreements):
            raise UserError(
                f"nothing to certify: the source and the adapted model are equal on all {len(names):,} images; "
                "adapt again"
            )

    def __len__(self) -> int:
        return len(self.names)

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256("\n".join([*self.names, *self.classes]).encode(errors="surrogateescape"))
        for classes in (self.start, self.adapted):
            digest.update(classes.astype("<i8").tobytes())
        return digest.hexdigest()[:16]


class AnswerLog:
    """The answers of a session on disk, one JSON object a line, after a ``header`` that says what they belong to. The
    last entry of a line, ``crc32``, is the checksum of the object without it; files of version 0.1 have none. An
    incomplete last line was never acknowledged; it is left out."""

    def __init__(self, path: Path, header: dict[str, Any]):
        self.path = path
        *self._lines, rest = path.read_bytes().split(b"\n") if path.exists() else [b""]
        with suppress(ValueError):
            json.JSONDecoder().raw_decode(rest.decode(errors="surrogateescape"))
            self._lines.append(rest)
        self._with_checksums = not self._lines or f'"{CHECKSUM}"'.encode() in self._lines[0]
        entries = [self._entry(number, line) for number, line in enumerate(self._lines, start=1)]
        self.entries = entries[1:]
        if not entries:
            self.append(header)
            return
        begun = {"side": "both", **entries[0]}  # the only one there was once
        different = [name for name in {**header, **entries[0]} if begun.get(name) != header.get(name)]
        if "predictions" in different:
            raise UserError(f"{path} holds answers about other predictions; move it away to start again")
        if different:
            name = different[0]
            raise UserError(
                f"{path} was begun with `{name}` {begun.get(name)}, not {header.get(name)}: its settings cannot "
                "change once labels are known; give the same, or move the file away to start again"
            )

    def append(self, entry: dict[str, Any]) -> None:
        """Add an entry; it is on the disk when this returns, or the file is as before."""
        lines = [*self._lines, self._line(entry)]
        write_bytes(self.path, b"".join(line + b"\n" for line in lines))
        self._lines = lines

    def _entry(self, number: int, line: bytes) -> dict[str, Any]:
        where, advice = f"{self.path}, line {number},", "; restore it from a copy, or move it away to start again"
        with reading(where, "an answer", advice):
            entry: dict[str, Any] = dict(json.loads(line.decode(errors="surrogateescape")))
            entry.pop(CHECKSUM, None)
            if self._line(entry) != line:
                raise ValueError("its checksum is wrong")
        return entry

    def _line(self, entry: dict[str, Any]) -> bytes:
        line = json.dumps(entry, ensure_ascii=False).encode(errors="surrogateescape")
        if not self._with_checksums:
            return line
        sealed = {**entry, CHECKSUM: f"{zlib.crc32(line):08x}"}
        return json.dumps(sealed, ensure_ascii=False).encode(errors="surrogateescape")


class Question(NamedTuple):
    """The image whose class is asked; the predicted classes come in random order."""

    position: int
    name: str
    options: tuple[int, ...]


class Session(Shown):
    """Asks for the classes of the images on which two models disagree, until it is decided which model is better. Its
    length is M, the number of images in question.

    A :class:`~tllib_ancon.measures.disagreement.DisagreementTest` takes the labels in one random order. ``delta``,
    ``margin`` (a fraction of all images) and ``side`` are its arguments. ``seed`` decides the order of the
    questions, unless ``ranks``, a random rank of each image, do. A session on the same file ``log`` resumes; without
    one nothing is stored.
    """

    def __init__(
        self,
        comparison: Comparison,
        delta: float = 0.05,
        margin: float = 0.0,
        seed: int = 0,
        log: Path | None = None,
        side: Side = "better",
        *,
        ranks: npt.ArrayLike | None = None,
    ):
        self.comparison, self.delta, self.margin, self.seed, self.side = comparison, delta, margin, seed, side
        self._generator = np.random.default_rng(seed)
        self._order = self._generator.permutation(comparison.disagreements)
        if ranks is not None:
            self._order = comparison.disagreements[np.argsort(np.asarray(ranks)[comparison.disagreements])]
        self._shuffles = self._generator.random(len(self._order))
        self.image: Callable[[int], Any] = lambda position: load_image(comparison.names[position])
        self.answers: list[Answer] = []
        self.undos = 0
        self.test = self.tested([])
        header = {"predictions": comparison.fingerprint, "seed": seed, "delta": delta, "margin": margin, "side": side}
        self._log: AnswerLog | None = None  # until its entries are taken in: they are not written again
        kept = None if log is None else AnswerLog(log, header)
        for number, entry in enumerate([] if kept is None else kept.entries, start=2):
            question = self.question
            if question and self.answers and entry == {"undo": self.asked(len(self.answers) - 1).name}:
                self.undo()
            elif question and entry.get("image") == question.name:
                said: Any = entry.get("answer")
                self.answer(said)
            else:
                raise UserError(f"{log}, line {number}: not the answer to the question at this place; restore the file")
        self._log = kept

    def __len__(self) -> int:
        return len(self._order)

    @property
    def question(self) -> Question | None:
        """What is asked now; None if nothing is."""
        return None if self.test.settled else self.asked(len(self.answers))

    def asked(self, place: int) -> Question:
        """The question at this place of the order of all, from 0 to M - 1."""
        position, draw = int(self._order[place]), float(self._shuffles[place])
        options = int(self.comparison.adapted[position]), int(self.comparison.start[position])
        return Question(position, self.comparison.names[position], options if draw < 0.5 else options[::-1])

    def answer(self, answer: Answer) -> None:
        """Answer the question by a class from 0 to K - 1, ``"another"`` or ``"cannot tell"``. With a log, the answer is
        on the disk when this returns."""
        question = self.question
        if question is None:
            raise UserError(f"no question is left to answer: the session ended {self.test.verdict!r}; start another")
        last = len(self.comparison.classes) - 1
        if answer not in (ANOTHER, CANNOT_TELL) and not (type(answer) is int and 0 <= answer <= last):
            raise UserError(
                f"an answer must be a class from 0 to {last}, {ANOTHER!r} or {CANNOT_TELL!r}, got {answer!r}"
            )
        if self._log is not None:
            self._log.append({"image": question.name, "answer": answer})
        self.answers.append(answer)
        adapted, start = (int(c[question.position]) for c in (self.comparison.adapted, self.comparison.start))
        self.test.update(int(answer == adapted) - int(answer == start))

    def answer_all(self, answers: Mapping[int, Answer]) -> int:
        """Answer the questions from a collection by the images' positions, up to the verdict or the first image without
        an answer; returns how many were answered. An answer after that one is not used: who picks the images that are
        labelled can pick the verdict."""
        before = len(self.answers)
        for place, known in enumerate(self.answers):
            asked = self.asked(place)
            if (new := answers.get(asked.position, known)) != known:
                told = f"{self.described(known)!r} before, now {self.described(new)!r}"
                raise UserError(f"two answers for {asked.name!r}: {told}; leave one of them out")
        while (question := self.question) is not None and question.position in answers:
            self.answer(answers[question.position])
        return len(self.answers) - before

    def undo(self) -> None:
        """Take the last answer back; its question is asked again, its classes in a new random order. Once there is
        a verdict it stands."""
        if self.question is None:
            raise UserError(
                f"the session ended {self.test.verdict!r}: its last answer stays; start a session with another `log`"
            )
        if not self.answers:
            raise UserError("there is no answer to take back; give one first")
        if self._log is not None:
            self._log.append({"undo": self.asked(len(self.answers) - 1).name})
        self.answers.pop()
        self.undos += 1
        self._shuffles[len(self.answers)] = self._generator.random()
        self.test = self.tested(self.test.outcomes[:-1])

    @property
    def certificate(self) -> Certificate:
        """What was found so far, ready for JSON; accuracies and their differences are fractions of all images.

        verdict: "better", "worse" or "undecided", of the adapted model against the source model

        settled: whether further labels are of no use

        returned: "adapted" if better, else "start", the source model

        difference, interval: mean outcome so far as a difference of accuracy (None before the first label), and an
        interval that is valid whenever labelling stops. Its error probability is δ, of each end if ``side`` is "better"

        labels, adapted_right, start_right, another, cannot_tell, undos: numbers of answers

        verdict_if_cannot_tell_counts_against: the verdict if each such answer counted against it

        images, disagreements, delta, margin, side, seed: the test

        e_better, e_worse, threshold: e-values, None if infinite, which is certainty

        labels_needed: a row for each of :data:`FAVOURING`, empty if settled. It has ``favouring``, the ``gain`` in
        accuracy and the fraction ``decisive``. ``median`` and ``ninetieth_percentile`` count labels over random orders
        of the open disagreements, None if all would not suffice
        """
        test, outcomes, cannot_tell = self.test, self.test.outcomes, self.answers.count(CANNOT_TELL)
        against = {"better": -1, "worse": 1, "undecided": 0}[test.verdict]
        answered = zip(self.answers, outcomes, strict=True)
        turned = self.tested(against if answer == CANNOT_TELL else value for answer, value in answered)
        return {
            "verdict": test.verdict,
            "settled": test.settled,
            "returned": "adapted" if test.verdict == "better" else "start",
            "difference": test.estimate if outcomes else None,
            "interval": list(test.interval),
            "labels": len(outcomes),
            "adapted_right": outcomes.count(1),
            "start_right": outcomes.count(-1),
            "another": outcomes.count(0) - cannot_tell,
            "cannot_tell": cannot_tell,
            "undos": self.undos,
            "verdict_if_cannot_tell_counts_against": turned.verdict,
            "images": len(self.comparison),
            "disagreements": len(self),
            "delta": self.delta,
            "margin": self.margin,
            "side": self.side,
            "seed": self.seed,
            "e_better": test.e_better if math.isfinite(test.e_better) else None,
            "e_worse": test.e_worse if math.isfinite(test.e_worse) else None,
            "threshold": test.threshold,
            "labels_needed": [] if test.settled else [*map(self._labels_needed, FAVOURING)],
        }

    def _labels_needed(self, favouring: float) -> dict[str, float | None]:
        outcomes, population = self.test.outcomes, (len(self), len(self.comparison))
        decisive = (DECISIVE[0] + len(outcomes) - outcomes.count(0)) / (DECISIVE[1] + len(outcomes))
        seen: dict[str, Any] = {"decisive": decisive, "outcomes": outcomes, "side": self.side}
        median, ninetieth = labels_needed(favouring, *population, self.delta, self.margin, **seen)
        gain = (2 * favouring - 1) * decisive * population[0] / population[1]
        row = {"favouring": favouring, "decisive": decisive, "gain": gain}
        return {**row, "median": median, "ninetieth_percentile": ninetieth}

    def __repr__(self) -> str:
        return "\n".join(in_words(self.certificate))

    def described(self, answer: Answer) -> str:
        return self.comparison.classes[answer] if isinstance(answer, int) else answer

    def tested(self, outcomes: Iterable[int]) -> DisagreementTest:
        population = {"disagreements": len(self), "images": len(self.comparison)}
        test = DisagreementTest(self.delta, self.margin, side=self.side, **population)
        for value in outcomes:
            test.update(value)
        return test


def in_words(certificate: Certificate) -> list[str]:
    verdict = certificate["verdict"]
    lower, upper = (f"{100 * end:+.1f}" for end in certificate["interval"])
    is_point = len({*certificate["interval"]}) == 1
    interval = f"{lower} points" if is_point else f"between {lower} and {upper} points"
    labels, disagreements, images = (f"{certificate[name]:,}" for name in ("labels", "disagreements", "images"))
    wrong = ("each end " if certificate.get("side") == "better" else "") + "wrong with probability"
    lines = [
        f"{'not certified' if verdict == 'undecided' else f'certified {verdict}'}: the adapted model's accuracy minus "
        f"the source model's is {interval} ({wrong} {100 * certificate['delta']:g} % at most); {labels} of "
        f"{disagreements} disagreements have a label, of {images} images"
    ]
    if (turned := certificate["verdict_if_cannot_tell_counts_against"]) != verdict:
        unknown = f"{certificate['cannot_tell']:,} images whose class nobody could tell"
        lines.append(f"the verdict would be {turned} if the {unknown} counted against it")
    if verdict == "undecided" and certificate["settled"]:
        lines.append(f"further labels decide nothing: the difference is within the margin of {certificate['margin']:g}")
    for row in certificate["labels_needed"]:
        total = (row["median"], row["ninetieth_percentile"])
        median, ninetieth = (number and number - certificate["labels"] for number in total)
        if median is not None:
            lines.append(
                f"if the adapted model is right on {100 * row['favouring']:.0f} % of the disagreements that "
                f"decide, a gain of {100 * row['gain']:.1f} points, about {median:,} more labels are needed"
                + ("" if ninetieth is None else f" (90th percentile: {ninetieth:,})")
            )
    return lines
