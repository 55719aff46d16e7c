"""What tests of TLLib need: the package, and for its scripts a checkout of its repository.

``pytest -m tllib`` runs them; without TLLib they are skipped (``tests/conftest.py``).
"""

import os
import sys
from pathlib import Path

import pytest

from tllib_ancon.toolkit.compat import INSTALL, is_installed

EXAMPLES = Path(os.environ.get("TLLIB_CHECKOUT", "")) / "examples" / "domain_adaptation" / "image_classification"

requires_tllib = pytest.mark.tllib
requires_checkout = pytest.mark.tllib(checkout=True)


def loaded_modules():
    """The names of TLLib's modules that are imported."""
    return [name for name in sys.modules if name.partition(".")[0] == "tllib"]


def missing(mark):
    """Why a test with this mark cannot run; None if it can."""
    if mark.kwargs.get("checkout"):
        if EXAMPLES.is_dir():
            return None
        return "TLLIB_CHECKOUT does not name a checkout of TLLib's repository"
    if is_installed("tllib"):
        return None
    return f"tllib is not installed: {INSTALL['tllib']}"
