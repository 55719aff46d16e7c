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


GLOBALS = """
import multiprocessing.reduction, sys, warnings, numpy, torch
def state():
    pickled = dict(multiprocessing.reduction.ForkingPickler._extra_reducers)
    return list(sys.meta_path), dir(numpy), dir(torch), pickled, list(warnings.filters), torch.get_num_threads()
before = state()
import tllib_ancon
"""
ONE_LOSS = """
logits = torch.randn(4, 3)
tllib_ancon.generalized_cross_entropy(logits, logits.softmax(1))
"""


@pytest.mark.parametrize("use", ["", ONE_LOSS, "tllib_ancon.AdaptConfig()\ntllib_ancon.adapt\n"])
def test_importing_the_package_changes_nothing_global(use: str) -> None:
    names = "'path numpy torch pickle warnings threads'.split()"
    code = f"{GLOBALS}{use}print([name for name, a, b in zip({names}, before, state()) if a != b])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_toolkit_brings_tllib_back() -> None:
    code = "import sys, tllib_ancon.toolkit; print([type(finder).__module__ for finder in sys.meta_path][0])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "tllib_ancon.toolkit.compat"
