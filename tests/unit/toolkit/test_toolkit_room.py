"""What knows TLLib stands alone: it imports errors and texts of this package, and nothing else of it."""

import ast
from pathlib import Path

from tests.support.project import names_of_imports
from tllib_ancon import toolkit

ROOMS = ("tllib_ancon.runtime", "tllib_ancon.toolkit")


def test_the_toolkit_imports_nothing_else_of_this_package():
    for path in Path(toolkit.__file__).parent.glob("*.py"):
        names = names_of_imports(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        ours = [name for name in names if name.startswith("tllib_ancon")]
        assert [name for name in ours if not name.startswith(ROOMS)] == []
