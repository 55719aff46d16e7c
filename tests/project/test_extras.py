"""An installation without extras does what the core promises, and one line says what each other part needs."""

import ast
import re
import subprocess
import sys

import pytest
from packaging.requirements import Requirement

from tests.support.places import ROOT
from tests.support.project import PROJECT, names_of_imports, packages
from tllib_ancon.cli.main import main

EXTRAS = PROJECT["optional-dependencies"]
FOR_DEVELOPERS = ("test", "docs", "dev")

COMMANDS = {
    "report nothing": ("pandas", "report needs pandas: pip install 'tllib-ancon[report]'"),
    "demo": ("sklearn", "demo needs sklearn: pip install 'tllib-ancon[demo]'"),
    "certify nothing --page": ("starlette", "--page needs starlette: pip install 'tllib-ancon[page]'"),
    "adapt nothing -a hf:net": (
        "transformers",
        "--arch hf:net needs transformers: pip install 'tllib-ancon[foundation]'",
    ),
    "evaluate nothing -a open_clip:net/a": (
        "open_clip",
        "--arch open_clip:net/a needs open_clip: pip install 'tllib-ancon[foundation]'",
    ),
    "benchmark nothing.toml nothing --address auto": (
        "ray",
        "--address auto needs ray: pip install 'tllib-ancon[ray]'",
    ),
}
"""Command line -> the missing package, and the line. Nothing that the command names exists: reading it would be another
error."""

ONLY_WHAT_THE_LOSSES_NEED = """
import sys

ALLOWED = {
    *sys.stdlib_module_names, "tllib_ancon", "torch", "functorch", "torchgen", "numpy", "pydantic", "pydantic_core",
    "annotated_types", "typing_extensions", "typing_inspection", "sympy", "mpmath", "filelock", "fsspec", "jinja2",
    "markupsafe", "networkx", "triton",
}
class Finder:
    def find_spec(name, path=None, target=None):
        if path is None and name not in ALLOWED and not name.startswith("_"):
            raise ModuleNotFoundError(f"blocked: {name}", name=name)
sys.meta_path.insert(0, Finder)
"""
"""Packages that torch, numpy and pydantic install; everything else is missing."""

EVERY_LOSS = (ROOT / "tests" / "support" / "every_loss.py").read_text(encoding="utf-8")


def run(code, *flags):
    done = subprocess.run([sys.executable, *flags, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_without_its_extra_is_one_line_before_anything_is_read_or_written(
    words, monkeypatch, tmp_path, capsys
):
    package, line = COMMANDS[words]
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"tllib-ancon: error: {line}"
    assert list(tmp_path.iterdir()) == []


def test_the_losses_work_where_only_torch_numpy_and_pydantic_are_installed():
    assert run(ONLY_WHAT_THE_LOSSES_NEED + EVERY_LOSS).startswith("4 losses and ")


def test_the_table_of_extras_says_what_pip_installs():
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", text, re.MULTILINE)
    documented = {name: sorted(packages.split(", ")) for name, packages in rows}
    installed = {name: sorted(Requirement(line).name for line in lines) for name, lines in EXTRAS.items()}
    (of_all,) = map(Requirement, EXTRAS["all"])
    assert documented == {name: installed[name] for name in installed if name not in (*FOR_DEVELOPERS, "all")}
    assert of_all.extras == documented.keys()


def test_outside_the_laboratory_only_packages_of_the_core_are_imported_with_a_module():
    modules_of_core = {Requirement(line).name.lower().replace("-", "_") for line in PROJECT["dependencies"]} | {"PIL"}
    package = ROOT / "tllib_ancon"
    exceptions = [*package.glob("laboratory/**/*.py"), package / "certificate" / "page.py"]
    for path in sorted({*package.rglob("*.py")} - {*exceptions}):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        assert packages(names_of_imports(body)) <= modules_of_core, path
