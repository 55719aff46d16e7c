"""Importing the package imports nothing heavy and changes nothing global, and all that it imports is declared."""

import ast
import subprocess
import sys
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import tllib_ancon
from tests.support.project import names_of_imports, packages
from tllib_ancon.config.toml import tomllib

HEAVY = ("torchvision", "timm", "sklearn", "matplotlib", "pandas", "dalib", "tllib")


def test_everything_that_a_module_imports_is_declared():
    source = Path(tllib_ancon.__file__).parent
    imported = set()
    for path in source.rglob("*.py"):
        imported |= packages(names_of_imports(list(ast.walk(ast.parse(path.read_text())))))
    project = tomllib.loads((source.parent / "pyproject.toml").read_text())["project"]
    requirements = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    declared = {canonicalize_name(Requirement(line).name) for line in requirements}
    undeclared = []
    for module, distributions in packages_distributions().items():
        if module in imported and not declared & set(map(canonicalize_name, distributions)):
            undeclared.append(module)
    assert undeclared == []


SCRIPT = """
import multiprocessing.reduction, sys, warnings, numpy, torch
def state():
    pickled = dict(multiprocessing.reduction.ForkingPickler._extra_reducers)
    parts = list(sys.meta_path), dir(numpy), dir(torch), pickled, list(warnings.filters), torch.get_num_threads()
    return dict(zip("path numpy torch pickle warnings threads".split(), parts))
before = state()
def told(what):
    print(what, [name for name, value in state().items() if value != before[name]])
import tllib_ancon
told("imported")
logits = torch.randn(4, 3)
tllib_ancon.generalized_cross_entropy(logits, logits.softmax(1))
tllib_ancon.AnchoredConfidence
told("one loss")
print("heavy", [name for name in HEAVY if name in sys.modules])
import multiprocessing.heap  # what it changes is not ours
before = state()
tllib_ancon.AdaptConfig()
tllib_ancon.adapt
told("configured")
print("slow", [name for name in ("timm", "torchvision", "huggingface_hub.hf_api", "scipy") if name in sys.modules])
import tllib_ancon.toolkit
print("first finder", type(sys.meta_path[0]).__module__)
"""


def test_importing_the_package_imports_nothing_heavy_and_changes_nothing_global_before_the_toolkit_is():
    code = SCRIPT.replace("HEAVY", repr(HEAVY))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    told = [
        "imported []",
        "one loss []",
        "heavy []",
        "configured []",
        "slow []",
        "first finder tllib_ancon.toolkit.compat",
    ]
    assert done.stdout.splitlines() == told
