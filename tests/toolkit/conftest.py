import os
import subprocess
import sys
from pathlib import Path

import pytest

from tllib_ancon.toolkit.compat import INSTALL, is_installed
from tllib_ancon.toolkit.toolkit import find

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = Path(os.environ.get("TLLIB_CHECKOUT", "")) / "examples" / "domain_adaptation" / "image_classification"

requires_tllib = pytest.mark.skipif(not is_installed("tllib"), reason=f"tllib is not installed: {INSTALL['tllib']}")
requires_checkout = pytest.mark.skipif(
    not EXAMPLES.is_dir(), reason="TLLIB_CHECKOUT does not name a checkout of TLLib's repository"
)


@pytest.fixture(params=["dalib", pytest.param("tllib", marks=requires_tllib)])
def toolkit(request):
    """Each toolkit in turn."""
    return find(request.param)


@pytest.fixture
def python():
    """Run code in a fresh interpreter that finds this checkout; ``paths`` come first on its path."""

    def run(code, *flags, paths=(), cwd=None):
        folders = [*paths, ROOT, os.environ.get("PYTHONPATH")]
        search = os.pathsep.join(str(folder) for folder in folders if folder)
        environment = {**os.environ, "PYTHONPATH": search, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *flags, "-c", code]
        return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True)

    return run
