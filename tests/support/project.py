"""What the package imports, and what its project file declares."""

import ast
import sys

from tests.support.places import ROOT
from tllib_ancon.config.toml import tomllib


def names_of_imports(nodes):
    """Dotted names of the modules that these nodes import."""
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}


def packages(names):
    """Packages of others among imported modules."""
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"tllib_ancon"}


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
