"""A labelling session: the images in question in random order, their answers and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tllib_ancon.certification import DisagreementTest, Verdict
from tllib_ancon.certify.answer_log import AnswerLog, Entry
from tllib_ancon.certify.answers import Answer, checked_answer, outcome
from tllib_ancon.certify.comparison import Comparison
from tllib_ancon.errors import UserError


@dataclass(frozen=True)
class Question:
    """The image whose class is asked.

    Attributes:
        number: of the question, from 0
        position: of the image among all N
        name: of the image
        options: the two classes that the models say, in random order, so that the person does not know which model said
            which
    """

    number: int
    position: int
    name: str
    options: tuple[int, int]


class Session:
    """Asks for the classes of the images on which two models disagree, until it is decided which model is better.

    Args:
        comparison (Comparison): what the models say
        delta, margin: of :class:`~tllib_ancon.certification.DisagreementTest`, as shares of all images
        seed (int): of the order of the questions. Default: 0
        log (Path, optional): file that keeps the answers; a session on the same file goes on where it was left. By
            default nothing is kept

    Raises:
        UserError: ``delta`` or ``margin`` out of range; a file of another session
    """

    def __init__(
        self,
        comparison: Comparison,
        delta: float = 0.05,
        margin: float = 0.0,
        seed: int = 0,
        log: Path | None = None,
    ):
        self.comparison = comparison
        self.seed = seed
        generator = np.random.default_rng(seed)
        self._order = generator.permutation(comparison.disagreements)
        self._adapted_first = generator.random(len(self._order)) < 0.5
        self._answers: list[Answer] = []
        self.delta, self.margin = delta, margin
        self.test = self.new_test()
        header = {"predictions": comparison.fingerprint, "seed": seed, "delta": delta, "margin": margin}
        self._log = None if log is None else AnswerLog(log, header)
        if self._log is not None:
            self._restore(self._log)

    def __len__(self) -> int:
        """M, the number of images in question."""
        return len(self._order)

    @property
    def answers(self) -> tuple[Answer, ...]:
        """In the order of the questions."""
        return tuple(self._answers)

    @property
    def verdict(self) -> Verdict:
        return self.test.verdict

    @property
    def settled(self) -> bool:
        """Whether nothing more is asked: there is a verdict, or there can be none."""
        return self.test.settled

    @property
    def question(self) -> Question | None:
        """What is asked now; None if nothing is."""
        return None if self.settled else self.asked(len(self._answers))

    def asked(self, number: int) -> Question:
        """The question of this number, from 0 to M - 1."""
        position = int(self._order[number])
        adapted, start = int(self.comparison.adapted[position]), int(self.comparison.start[position])
        options = (adapted, start) if self._adapted_first[number] else (start, adapted)
        return Question(number, position, self.comparison.names[position], options)

    def upcoming(self, count: int) -> list[str]:
        """Names of the next images whose classes would be asked, for one who labels them elsewhere."""
        return [self.asked(number).name for number in range(len(self._answers), len(self))[:count]]

    def answer(self, answer: Answer) -> None:
        """Answer the question. With a log, the answer is on the disk when this returns.

        Args:
            answer: a class from 0 to K - 1, ``"another"`` or ``"cannot tell"``

        Raises:
            UserError: nothing is asked, no such answer, or it could not be written
        """
        question = self.question
        if question is None:
            raise UserError(
                f"no question is open: the session ended {self.verdict!r} after {len(self._answers)} labels"
            )
        answer = checked_answer(answer, len(self.comparison.classes))
        if self._log is not None:
            self._log.append({"image": question.name, "answer": answer})
        self._take(question, answer)

    def answer_all(self, answers: Mapping[int, Answer]) -> int:
        """Answer the questions from a collection, up to the verdict or the first image without an answer.

        An answer after that one is not used: who picks the images that are labelled can pick the verdict.

        Args:
            answers: position of an image -> its answer

        Outputs: how many questions were answered.

        Raises:
            UserError: an image that has another answer already; as :meth:`answer`
        """
        for number, known in enumerate(self._answers):
            asked = self.asked(number)
            if answers.get(asked.position, known) != known:
                new = self.described(answers[asked.position])
                raise UserError(f"two answers for {asked.name!r}: {self.described(known)!r} before, now {new!r}")
        before = len(self._answers)
        while (question := self.question) is not None and question.position in answers:
            self.answer(answers[question.position])
        return len(self._answers) - before

    def undo(self) -> None:
        """Take the last answer back; its question is asked again.

        Raises:
            UserError: there is no answer, or it could not be written
        """
        if not self._answers:
            raise UserError("there is no answer to take back")
        if self._log is not None:
            self._log.append({"undo": self.asked(len(self._answers) - 1).name})
        self._take_back()

    def described(self, answer: Answer) -> str:
        """The class's name, ``another`` or ``cannot tell``."""
        return self.comparison.classes[answer] if isinstance(answer, int) else answer

    def new_test(self) -> DisagreementTest:
        """The test before any label."""
        return DisagreementTest(self.delta, self.margin, disagreements=len(self._order), images=len(self.comparison))

    def _take(self, question: Question, answer: Answer) -> None:
        position = question.position
        self._answers.append(answer)
        self.test.update(outcome(answer, int(self.comparison.adapted[position]), int(self.comparison.start[position])))

    def _take_back(self) -> None:
        self._answers.pop()
        outcomes, self.test = self.test.outcomes[:-1], self.new_test()
        for value in outcomes:
            self.test.update(value)

    def _restore(self, log: AnswerLog) -> None:
        for number, entry in enumerate(log.entries, start=2):
            if not self._restored(entry):
                raise UserError(f"{log.path}, line {number}: not the answer to the question at this place")

    def _restored(self, entry: Entry) -> bool:
        if "undo" in entry and self._answers:
            self._take_back()
            return True
        if len(self._answers) == len(self) or entry.get("image") != self.asked(len(self._answers)).name:
            return False
        answer = checked_answer(entry.get("answer"), len(self.comparison.classes))
        self._take(self.asked(len(self._answers)), answer)
        return True
