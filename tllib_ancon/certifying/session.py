"""A labelling session: the images on which two models disagree, in random order, their answers and the certificate.

An answer to "which class is this?" is a class, ``"another"`` (neither class in question) or ``"cannot tell"``. For the
difference of accuracy a class counts +1 if it is the adapted model's, -1 if it is the source model's, else 0; the two
others count 0. So an image whose class the user cannot tell is one that no model gets right, a property of the image
that the order of the labels does not change: the guarantee holds for the accuracies counted so.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from tllib_ancon.certification import DisagreementTest, Side, labels_needed
from tllib_ancon.data.answers import ANOTHER, CANNOT_TELL, Answer
from tllib_ancon.data.images import load_image
from tllib_ancon.errors import UserError, reading
from tllib_ancon.text import Shown, showable
from tllib_ancon.training.files import read_bytes, write_bytes

Classes = npt.NDArray[np.int64]
Certificate = dict[str, Any]

CHECKSUM = "crc32"
FAVOURING = (0.6, 0.7, 0.8)
"""Shares of the decisive disagreements in favour of the adapted model for which it says what "better" would take."""
DECISIVE = (8.5, 10)
"""So many of so many disagreements are taken to be decisive beside those that have a label: as on the 105 runs of
benchmarks/results/certification_grid.md."""


class Comparison:
    """What a source model and an adapted model, or several, say of the same N images.

    ``start`` and ``adapted`` are their classes, (N,) integers in [0, K), or a list of such where ``models`` names the
    adapted models; by ``names``, e.g. paths, answers speak of the images; ``classes`` are the names of the K classes.
    ``candidates`` are the classes of the adapted models that differ from the source model, ``numbers`` their places in
    the list, ``adapted`` is the first of them; if there is none it is refused. ``disagreements`` are the positions of
    the M images on which any differs, ascending.
    """

    def __init__(
        self,
        start: npt.ArrayLike,
        adapted: npt.ArrayLike | Sequence[npt.ArrayLike],
        names: Sequence[str],
        classes: Sequence[str],
        models: Sequence[str] | None = None,
    ):
        self.names, self.classes = names, [showable(name) for name in classes]
        self.models = [*map(showable, models or ("the adapted model",))]
        several = [adapted] if models is None else [*cast(Sequence[npt.ArrayLike], adapted)]
        for model, given in (("source", np.asarray(start)), *(("adapted", np.asarray(said)) for said in several)):
            if given.shape != (len(names),) or given.dtype.kind not in "iu":
                raise UserError(
                    f"the {model} model's predictions have shape {given.shape} and type {given.dtype}; give an integer "
                    f"class for each of {len(names):,} images"
                )
            if not len(names) or given.min() < 0 or given.max() >= len(classes):
                raise UserError(f"the {model} model's predictions are not all classes from 0 to {len(classes) - 1}")
        self.start, given = np.asarray(start, np.int64), np.array(several, np.int64)
        self.disagreements: Classes = np.flatnonzero((given != self.start).any(axis=0))
        self.numbers: Classes = np.flatnonzero((given != self.start).any(axis=1))
        self.candidates: Classes = given[self.numbers]
        if not len(self.disagreements):
            raise UserError(
                f"nothing to certify: the source and the adapted model are equal on all {len(names):,} images"
            )
        self.adapted: Classes = self.candidates[0]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256("\n".join([*self.names, *self.classes]).encode(errors="surrogateescape"))
        for classes in (self.start, *self.candidates):
            digest.update(classes.astype("<i8").tobytes())
        return digest.hexdigest()[:16]


class AnswerLog:
    """The answers of a session on disk, one JSON object a line. The first is the ``header``, which says what the
    answers belong to; an existing file must have the same. ``entries`` are the lines after it that the file had.

    The last entry of a line, ``crc32``, is the checksum of the object without it; a file that version 0.1 began has no
    checksum in any line, and goes on without. A last line that is no whole object was cut off by the end of its process
    and never acknowledged; it is left out.
    """

    def __init__(self, path: Path, header: dict[str, Any]):
        self.path = path
        *self._lines, rest = read_bytes(path).split(b"\n") if path.exists() else [b""]
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
            raise UserError(f"{path} holds answers about other predictions; move it away to begin anew")
        if different:
            name = different[0]
            raise UserError(
                f"{path} was begun with `{name}` {begun.get(name)}, not {header.get(name)}: its settings cannot "
                "change once labels are known; give the same, or move the file away to begin anew"
            )

    def append(self, entry: dict[str, Any]) -> None:
        """Add an entry; it is on the disk when this returns, or the file is as before."""
        lines = [*self._lines, self._line(entry)]
        write_bytes(self.path, b"".join(line + b"\n" for line in lines))
        self._lines = lines

    def _entry(self, number: int, line: bytes) -> dict[str, Any]:
        where, advice = f"{self.path}, line {number},", "; restore it from a copy, or move it away to begin anew"
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
    """The image whose class is asked, by its position among all N and its name. The classes that the models say come in
    random order, so that the user does not know which model said which."""

    position: int
    name: str
    options: tuple[int, ...]


class Session(Shown):
    """Asks for the classes of the images on which two models disagree, until it is decided which model is better. Its
    length is M, the number of images in question.

    Each of K adapted models has a :class:`~tllib_ancon.certification.DisagreementTest` at ``delta`` / K of its own
    disagreements, so that one that is not better is returned with probability ``delta`` at most (Bonferroni). All take
    their labels from one random order of the images on which any differs from the source model. An image is left out
    when the tests of all that differ there are settled: to those that go on the order is as random as before. The
    session ends with the first "better".

    ``delta``, ``margin``, a share of all images, and ``side`` are those of these tests; ``seed`` decides the order of
    the questions, which is that of ``answers``, unless ``ranks``, one of each image drawn at random, do. A session on
    the same file ``log`` goes on where it was left; without one nothing is kept.
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
        self._asked: list[tuple[int, list[int]]] = []  # of each answer the place of its question, and whom it tested
        self._differ = comparison.candidates[:, self._order] != comparison.start[self._order]
        self.tests = [self.tested(number, []) for number in range(len(self._differ))]
        header = {"predictions": comparison.fingerprint, "seed": seed, "delta": delta, "margin": margin, "side": side}
        self._log: AnswerLog | None = None  # until its entries are taken in: they are not written again
        kept = None if log is None else AnswerLog(log, header)
        for number, entry in enumerate([] if kept is None else kept.entries, start=2):
            question = self.question
            if question and self.answers and entry == {"undo": self.asked(self._asked[-1][0]).name}:
                self.undo()
            elif question and entry.get("image") == question.name:
                said: Any = entry.get("answer")
                self.answer(said)
            else:
                raise UserError(f"{log}, line {number}: not the answer to the question at this place")
        self._log = kept

    def __len__(self) -> int:
        return len(self._order)

    @property
    def best(self) -> int:
        """The adapted model that is certified better, or has the most evidence that it is."""
        ranks = ("worse", "undecided", "better")
        evidence = [(ranks.index(test.verdict), test.e_better) for test in self.tests]
        return evidence.index(max(evidence))

    @property
    def test(self) -> DisagreementTest:
        """That of the best adapted model, or of the only one."""
        return self.tests[self.best]

    @property
    def settled(self) -> bool:
        """Whether further labels are of no use."""
        return self.test.verdict == "better" or all(test.settled for test in self.tests)

    @property
    def place(self) -> int:
        """Of the question that is asked now, in the order of all: the next image on which a model differs whose test
        goes on; M if there is none."""
        going_on = [not test.settled for test in self.tests]
        first = self._asked[-1][0] + 1 if self._asked else 0
        return first + int(np.append(self._differ[going_on, first:].any(axis=0), True).argmax())

    @property
    def question(self) -> Question | None:
        """What is asked now; None if nothing is."""
        return None if self.settled else self.asked(self.place)

    def asked(self, place: int) -> Question:
        """The question at this place of the order of all, from 0 to M - 1."""
        position, draw = int(self._order[place]), float(self._shuffles[place])
        models = (*self.comparison.candidates, self.comparison.start)
        said, options = [*dict.fromkeys(int(classes[position]) for classes in models)], []
        while said:  # each order is as likely, by the digits of one draw
            digit, draw = divmod(draw * len(said), 1)
            options.append(said.pop(int(digit)))
        return Question(position, self.comparison.names[position], tuple(options))

    def answer(self, answer: Answer) -> None:
        """Answer the question by a class from 0 to K - 1, ``"another"`` or ``"cannot tell"``. With a log, the answer is
        on the disk when this returns."""
        question, place = self.question, self.place
        if question is None:
            raise UserError(
                f"no question is open: the session ended {self.test.verdict!r} after {len(self.answers)} labels"
            )
        last = len(self.comparison.classes) - 1
        if answer not in (ANOTHER, CANNOT_TELL) and not (type(answer) is int and 0 <= answer <= last):
            raise UserError(f"an answer is a class from 0 to {last}, {ANOTHER!r} or {CANNOT_TELL!r}, got {answer!r}")
        if self._log is not None:
            self._log.append({"image": question.name, "answer": answer})
        tested = [at for at, test in enumerate(self.tests) if self._differ[at, place] and not test.settled]
        self.answers.append(answer)
        self._asked.append((place, tested))
        start = int(self.comparison.start[question.position])
        for at in tested:
            said = int(self.comparison.candidates[at, question.position])
            self.tests[at].update(int(answer == said) - int(answer == start))

    def answer_all(self, answers: Mapping[int, Answer]) -> int:
        """Answer the questions from a collection by the images' positions, up to the verdict or the first image without
        an answer; returns how many were answered. An answer after that one is not used: who picks the images that are
        labelled can pick the verdict."""
        before = len(self.answers)
        for (place, _), known in zip(self._asked, self.answers, strict=True):
            asked = self.asked(place)
            if (new := answers.get(asked.position, known)) != known:
                told = f"{self.described(known)!r} before, now {self.described(new)!r}"
                raise UserError(f"two answers for {asked.name!r}: {told}")
        while (question := self.question) is not None and question.position in answers:
            self.answer(answers[question.position])
        return len(self.answers) - before

    def undo(self) -> None:
        """Take the last answer back; its question is asked again, its classes in a new random order. Once there is
        a verdict it stands."""
        if self.question is None:
            raise UserError(f"the session ended {self.test.verdict!r}: its last answer cannot be taken back")
        if not self.answers:
            raise UserError("there is no answer to take back")
        if self._log is not None:
            self._log.append({"undo": self.asked(self._asked[-1][0]).name})
        self.answers.pop()
        self.undos += 1
        place, tested = self._asked.pop()
        self._shuffles[place] = self._generator.random()
        for at in tested:
            self.tests[at] = self.tested(at, self.tests[at].outcomes[:-1])

    @property
    def certificate(self) -> Certificate:
        """What was found so far, as :func:`certificate_of` tells it."""
        return certificate_of(self)

    def __repr__(self) -> str:
        return "\n".join(in_words(self.certificate))

    def described(self, answer: Answer) -> str:
        return self.comparison.classes[answer] if isinstance(answer, int) else answer

    def answers_of(self, number: int) -> list[Answer]:
        """Those that tested this adapted model, as ``tests[number].outcomes`` are."""
        return [answer for answer, (_, tested) in zip(self.answers, self._asked, strict=True) if number in tested]

    def tested(self, number: int, outcomes: Iterable[int]) -> DisagreementTest:
        """The test of one of the adapted models after these labels."""
        population = {"disagreements": int(self._differ[number].sum()), "images": len(self.comparison)}
        test = DisagreementTest(self.delta / len(self._differ), self.margin, side=self.side, **population)
        for value in outcomes:
            test.update(value)
        return test


def certificate_of(session: Session) -> Certificate:
    """What a session found, ready for JSON; accuracies and their differences are shares of all images.

    - ``verdict``: "better", "worse" or "undecided", of the adapted model against the source model
    - ``settled``: whether further labels are of no use
    - ``returned``: "adapted" if better, else "start", the source model
    - ``difference``: the mean outcome so far as a difference of accuracy, None before the first label
    - ``interval``: lower and upper end of that difference, valid whenever one stops: wrong with probability δ at most,
      each end where ``side`` is "better"
    - ``labels``, and of these ``adapted_right``, ``start_right``, ``another`` and ``cannot_tell``; ``undos``, how many
      more were taken back
    - ``verdict_if_cannot_tell_counts_against``: what the verdict would be if each image whose class could not be told
      counted against it
    - ``images``, ``disagreements``, ``delta``, ``margin``, ``side``, ``seed``
    - ``e_better``, ``e_worse``: None where infinite, which is certainty; ``threshold``
    - ``labels_needed``: where not settled, what "better" would take for each of :data:`FAVOURING`: ``favouring``, the
      ``gain`` in accuracy that it is, by the ``decisive`` share that the labels so far suggest, and the labels from the
      first to the verdict, ``median`` and ``ninetieth_percentile`` over random orders of the disagreements without a
      label, None where all would not do

    Of several adapted models all this is of the one that is returned, or else of the best so far; ``model`` is its
    number in the list, from 0, ``asked`` are all labels, ``in_question`` all images that may be asked, and
    ``candidates`` the numbers of each, "undecided" with no disagreement where it is equal to the source model.
    """
    test, models, best = session.test, session.comparison.models, session.best
    disagreements, images = cast(int, test.disagreements), len(session.comparison)
    outcomes, answers = test.outcomes, session.answers_of(best)
    cannot_tell = answers.count(CANNOT_TELL)
    against = {"better": -1, "worse": 1, "undecided": 0}[test.verdict]
    turned = (against if answer == CANNOT_TELL else value for answer, value in zip(answers, outcomes, strict=True))
    needed: list[dict[str, float | int | None]] = []
    decisive = (DECISIVE[0] + len(outcomes) - outcomes.count(0)) / (DECISIVE[1] + len(outcomes))
    seen: dict[str, Any] = {"decisive": decisive, "outcomes": outcomes, "side": session.side}
    for share in () if session.settled else FAVOURING:
        median, ninetieth = labels_needed(share, disagreements, images, test.delta, session.margin, **seen)
        gain = (2 * share - 1) * decisive * disagreements / images
        row = {"favouring": share, "decisive": decisive, "gain": gain}
        needed.append({**row, "median": median, "ninetieth_percentile": ninetieth})
    several: Certificate = {}
    if len(models) > 1:
        equal = {"verdict": "undecided", "labels": 0, "disagreements": 0, "interval": [0.0, 0.0]}
        of_each = [{"name": name, **equal} for name in models]
        for number, tested in zip(session.comparison.numbers, session.tests, strict=True):
            of_each[number] |= {"verdict": tested.verdict, "labels": len(tested.outcomes)}
            of_each[number] |= {"disagreements": tested.disagreements, "interval": list(tested.interval)}
        several = {"model": int(session.comparison.numbers[best]), "asked": len(session.answers)}
        several |= {"in_question": len(session), "candidates": of_each}
    return {
        "verdict": test.verdict,
        "settled": session.settled,
        "returned": "adapted" if test.verdict == "better" else "start",
        "difference": test.estimate if outcomes else None,
        "interval": list(test.interval),
        "labels": len(outcomes),
        "adapted_right": outcomes.count(1),
        "start_right": outcomes.count(-1),
        "another": outcomes.count(0) - cannot_tell,
        "cannot_tell": cannot_tell,
        "undos": session.undos,
        "verdict_if_cannot_tell_counts_against": session.tested(best, turned).verdict,
        "images": images,
        "disagreements": disagreements,
        "delta": session.delta,
        "margin": session.margin,
        "side": session.side,
        "seed": session.seed,
        "e_better": test.e_better if math.isfinite(test.e_better) else None,
        "e_worse": test.e_worse if math.isfinite(test.e_worse) else None,
        "threshold": test.threshold,
        "labels_needed": needed,
        **several,
    }


def in_words(certificate: Certificate) -> list[str]:
    """The certificate as lines, differences in points."""
    verdict, several = certificate["verdict"], certificate.get("candidates", ())
    name = several[certificate["model"]]["name"] if several else "the adapted model"
    of_its, found = "of its own disagreements " * bool(several), _between(certificate["interval"])
    labels, disagreements, images = (f"{certificate[name]:,}" for name in ("labels", "disagreements", "images"))
    wrong = ("each end " if certificate.get("side") == "better" else "") + "wrong with probability"
    lines = [
        f"{'not certified' if verdict == 'undecided' else f'certified {verdict}'}: {name}'s accuracy minus "
        f"the source model's is {found} ({wrong} {100 * certificate['delta']:g} % at most); {labels} of "
        f"{disagreements} disagreements have a label, of {images} images"
    ]
    if (turned := certificate["verdict_if_cannot_tell_counts_against"]) != verdict:
        unknown = f"{certificate['cannot_tell']:,} images whose class nobody could tell"
        lines.append(f"the verdict would be {turned} if the {unknown} counted against it")
    for one in several:
        told = f"{one['verdict']}, {_between(one['interval'])}; {one['labels']:,} labels of {one['disagreements']:,}"
        equal = "equal to the source model on all images, left out"
        lines.append(f"{one['name']}: {told if one['disagreements'] else equal}")
    if several:
        lines.append(f"{certificate['asked']:,} labels in all, of {certificate['in_question']:,} images in question")
    if verdict == "undecided" and certificate["settled"]:
        lines.append(f"further labels decide nothing: the difference is within the margin of {certificate['margin']:g}")
    for row in certificate["labels_needed"]:
        total = (row["median"], row["ninetieth_percentile"])
        median, ninetieth = (number and number - certificate["labels"] for number in total)
        if median is not None:
            lines.append(
                f"if {name} is right on {100 * row['favouring']:.0f} % of the disagreements that "
                f"decide, a gain of {100 * row['gain']:.1f} points, about {median:,} more labels {of_its}are needed"
                + ("" if ninetieth is None else f" (90th percentile: {ninetieth:,})")
            )
    return lines


def _between(interval: Sequence[float]) -> str:
    """In points."""
    lower, upper = (f"{100 * end:+.1f}" for end in interval)
    return f"{lower} points" if len({*interval}) == 1 else f"between {lower} and {upper} points"
