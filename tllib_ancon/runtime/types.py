"""Names for mappings and functions that rooms hand to each other."""

from collections.abc import Callable, Mapping
from typing import Any

Options = Mapping[str, Any]
"""Settings or options by name."""

Record = dict[str, Any]
"""What a file of a run holds, such as ``config.json`` or ``result.json``."""

Metrics = dict[str, Any]
"""The numbers of an epoch by name."""

State = dict[str, Any]
"""What ``state_dict`` returns and ``load_state_dict`` takes."""

Show = Callable[[str], None]
"""Shows a line to the user."""
