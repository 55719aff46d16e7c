"""The only place that knows TLLib: what makes it run today, ``tllib`` or ``dalib``, and its scripts."""

from tllib_ancon.toolkit.binding import find
from tllib_ancon.toolkit.compat import enable

__all__ = ["enable", "find"]
