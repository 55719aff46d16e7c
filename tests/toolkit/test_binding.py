from __future__ import annotations

import sys
import types
from importlib.machinery import ModuleSpec

import pytest

from tests.toolkit.conftest import requires_tllib
from tllib_ancon.errors import UserError
from tllib_ancon.toolkit import binding, find


def test_dalib_is_always_there():
    assert find("dalib").name == "dalib"


def test_the_default_is_the_best_toolkit_there(monkeypatch):
    monkeypatch.setattr(binding, "is_installed", lambda name: name == "dalib")
    assert find().name == "dalib"


@requires_tllib
def test_tllib_is_preferred():
    assert find().name == "tllib"


def test_neither_is_installed(monkeypatch):
    monkeypatch.setattr(binding, "is_installed", lambda name: False)
    with pytest.raises(UserError, match=r"git\+https://github.com/thuml.*pip install 'tllib-ancon\[tllib\]'"):
        find()
    with pytest.raises(UserError, match=r"tllib cannot be found.*c4aa59eb565650a552b809411601d0589efbbfe4"):
        find("tllib")


def test_unknown_toolkit():
    with pytest.raises(UserError, match="did you mean 'dalib'"):
        find("dalip")


def test_a_folder_of_that_name_is_not_the_package(tmp_path, monkeypatch):
    (tmp_path / "tllib").mkdir()
    monkeypatch.delitem(sys.modules, "tllib", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert not binding.is_installed("tllib")


def test_a_toolkit_that_does_not_import_says_why(tmp_path, monkeypatch):
    (tmp_path / "tllib").mkdir()
    (tmp_path / "tllib" / "__init__.py").write_text("import a_library_that_is_not_there\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "tllib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match=r"does not import.*a_library_that_is_not_there"):
        find("tllib")


@pytest.mark.parametrize("content", ["x = 1", "raise SyntaxError('another program')", "1 / 0", "def"])
def test_a_file_of_another_program_is_named(tmp_path, monkeypatch, content: str) -> None:
    (tmp_path / "tllib.py").write_text(content + "\n")
    for name in ["tllib", *sys.modules]:
        if name.partition(".")[0] == "tllib" or name.endswith("tllib_binding"):
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))  # put back, or removed, at the end
            del sys.modules[name]
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError) as refusal:
        find()
    assert f"tllib ({tmp_path / 'tllib.py'}) does not import as the toolkit" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_finding_does_not_import(monkeypatch):
    module = types.ModuleType("tllib")
    module.__spec__ = ModuleSpec("tllib", loader=None, origin="somewhere")
    monkeypatch.setitem(sys.modules, "tllib", module)
    assert binding.is_installed("tllib")
