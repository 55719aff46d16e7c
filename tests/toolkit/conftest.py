from __future__ import annotations

import pytest

from tllib_ancon.toolkit.binding import INSTALL, find, is_installed
from tllib_ancon.toolkit.interface import Toolkit

requires_tllib = pytest.mark.skipif(
    not is_installed("tllib"), reason=f"tllib is not installed: {INSTALL['tllib']}"
)


@pytest.fixture(params=["dalib", pytest.param("tllib", marks=requires_tllib)])
def toolkit(request: pytest.FixtureRequest) -> Toolkit:
    """Each toolkit in turn."""
    return find(request.param)
