"""A fact about a model and images: one line of ``check``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tllib_ancon.runtime.text import showable

FINE = ""
"""Mark of a fact that is as usual."""

LOOK = "?"
"""Mark of a fact that is assumed or unusual."""

WRONG = "!"
"""Mark of a fact with which ``adapt`` ends in an error or starts from wrong predictions."""

LEGEND = {
    LOOK: "? assumed or unusual: look at this line",
    WRONG: "! adapt would end in an error, or start from wrong predictions",
}
WIDTH = 15
"""Characters of the names of facts."""

FEW_NAMES = 4
"""Names in a line; of more, the first, the last and the number are shown."""


@dataclass(frozen=True)
class Fact:
    """A fact about a model and images.

    Attributes:
        text: the fact in words
        values: the same as numbers and names, by name
        settings: settings or arguments that change it
        mark: ``""``; ``"?"`` for a fact that is assumed or unusual; ``"!"`` for one with which ``adapt`` would fail
    """

    text: str
    values: Mapping[str, Any] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    mark: str = FINE

    def line(self, name: str, only: Iterable[str] | None = None) -> str:
        """One line: mark, name, text and settings. Default of ``only``, the settings that the door has: all."""
        settings = [f"`{setting}`" for setting in self.settings if only is None or setting in only]
        line = f"{self.mark:1} {name.replace('_', ' '):<{WIDTH}} {showable(self.text)}"
        if not settings:
            return line
        return f"{line}  [{', '.join(settings)}]"


def counted(number: int, singular: str, plural: str = "") -> str:
    """``1 image``, ``2 images``"""
    if number == 1:
        return f"1 {singular}"
    return f"{number:,} {plural or singular + 's'}"


def first_names(names: Sequence[str]) -> str:
    """The first names, and how many there are."""
    if len(names) <= FEW_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[: FEW_NAMES - 1])}, ... {names[-1]} ({len(names)})"


def both_ends(names: Sequence[str]) -> str:
    """The first and the last name."""
    if len(names) == 1:
        return names[0]
    return f"{names[0]} to {names[-1]}"


def duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


def storage(number: int) -> str:
    """Bytes in MB or GB."""
    if number < 1e6:
        return "less than 1 MB"
    if number < 1e9:
        return f"{number / 1e6:.0f} MB"
    return f"{number / 1e9:.1f} GB"
