"""A fact about a model and images: one line of ``check``."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tllib_ancon.runtime.errors import named
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
        settings = [f"{named(setting)}" for setting in self.settings if only is None or setting in only]
        line = f"{self.mark:1} {name.replace('_', ' '):<{WIDTH}} {showable(self.text)}"
        if not settings:
            return line
        return f"{line}  [{', '.join(settings)}]"
