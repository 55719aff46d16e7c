from __future__ import annotations

import subprocess
import sys

import pytest

import tllib_ancon

HEAVY = ("torchvision", "timm", "accelerate", "torchmetrics", "sklearn", "matplotlib", "pandas", "dalib", "tllib")


@pytest.mark.parametrize("name", tllib_ancon.__all__)
def test_every_name_of_the_contract_is_there(name: str) -> None:
    assert getattr(tllib_ancon, name) is not None


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'AnCon'"):
        _ = tllib_ancon.AnCon


def test_importing_the_package_and_its_algorithm_imports_nothing_heavy() -> None:
    code = f"import sys, tllib_ancon; tllib_ancon.AnchoredConfidence; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
