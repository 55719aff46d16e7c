"""Notes for the user: what was assumed, decided or left out, each with the code by which programs and tests know it."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["info", "warning"]


@dataclass(frozen=True)
class Note:
    """One line for the user about a model, images or a run.

    Attributes:
        code: which note it is, such as ``"few-images"``; the same in every version of the text
        text: what is so
        setting: name of the setting that changes it; may be empty
        action: what to do; may be empty
        level: ``"info"`` for what was decided, ``"warning"`` for what may be wrong
    """

    code: str
    text: str
    setting: str = ""
    action: str = ""
    level: Level = "info"

    def __str__(self) -> str:
        if not self.action:
            return self.text
        return f"{self.text}; {self.action}"
