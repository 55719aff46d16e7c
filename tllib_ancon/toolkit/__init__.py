"""The only place that knows TLLib: what makes it run today, ``tllib`` or ``dalib``, and its scripts.

Importing this package makes ``import tllib`` and ``import dalib`` work from then on; nothing else in this project does
that unasked.
"""

from tllib_ancon.toolkit.compat import enable

__all__ = ["enable"]

enable()
