"""What importing costs in a fresh interpreter, by ``python -X importtime`` and by processor time."""

import re
import subprocess
import sys
from pathlib import Path

from benchmarks.speed.timing import row

ROOT = Path(__file__).resolve().parents[2]

_PROCESSOR_TIME = """
import time
{before}
started = time.process_time()
{statement}
print(time.process_time() - started)
"""


def measure(rounds=5, **_):
    yield row("import tllib_ancon", [_import_time() for _ in range(rounds)], "ms", at_most=5)
    losses = "from tllib_ancon import AnchoredConfidence"
    after_torch = [_processor_time(losses, "import torch") for _ in range(rounds)]
    yield row(f"{losses}, after torch", after_torch, "s", at_most=0.2)
    adapt = "from tllib_ancon import adapt"
    yield row("import torch", [_processor_time("import torch") for _ in range(rounds)], "s")
    yield row(adapt, [_processor_time(adapt) for _ in range(rounds)], "s", at_most=2.5)


def _import_time():
    """Milliseconds of ``import tllib_ancon`` with what it imports, in an interpreter without site-packages."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import tllib_ancon"
    lines = _run("-I", "-S", "-X", "importtime", "-c", code).stderr
    (microseconds,) = re.findall(r"\| +(\d+) \| tllib_ancon$", lines, re.MULTILINE)
    return int(microseconds) / 1000


def _processor_time(statement, before=""):
    """Seconds of a statement, all threads together."""
    return float(_run("-c", _PROCESSOR_TIME.format(statement=statement, before=before)).stdout)


def _run(*words):
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=True)
