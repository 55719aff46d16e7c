"""The best toolkit that is installed is found, and its tables of datasets equal ours."""

import sys
import types
from importlib import import_module

import pytest

from tests.support.refusals import one_line
from tllib_ancon.data.layouts.tllib import TABLES
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.toolkit import toolkit as toolkits
from tllib_ancon.toolkit.toolkit import find


def test_the_best_toolkit_there_is_found(monkeypatch):
    assert find().name == ("tllib" if toolkits.is_installed("tllib") else "dalib")
    monkeypatch.setattr(toolkits, "is_installed", lambda name: name == "dalib")
    assert find().name == "dalib"
    monkeypatch.setattr(toolkits, "is_installed", lambda name: False)
    with one_line(r"git\+https://github.com/thuml.*pip install 'tllib-ancon\[tllib\]'"):
        find()
    with one_line(r"tllib cannot be found.*c4aa59eb565650a552b809411601d0589efbbfe4"):
        find("tllib")


@pytest.mark.parametrize(
    "content",
    ["import a_library_that_is_not_there", "x = 1", "raise SyntaxError('another program')", "1 / 0", "def"],
)
def test_a_file_of_another_program_is_named(tmp_path, monkeypatch, content):
    (tmp_path / "tllib.py").write_text(content + "\n")
    for name in ["tllib", *sys.modules]:
        if name.partition(".")[0] == "tllib":
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))  # put back, or removed, at the end
            del sys.modules[name]
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError) as refusal:
        find()
    assert f"tllib ({tmp_path / 'tllib.py'}) does not import as the toolkit" in str(refusal.value)
    assert ("a_library_that_is_not_there" in str(refusal.value)) == ("library" in content)
    assert "\n" not in str(refusal.value)


def test_the_tables_of_datasets_are_the_toolkits(toolkit):
    theirs = import_module(f"{toolkit.name}.vision.datasets")
    for name in {"DomainNet", "ImageNetR", "Office31", "OfficeHome", "PACS", "VisDA2017"} & vars(theirs).keys():
        table = TABLES[name]
        dataset = getattr(theirs, name)
        assert table.classes == list(dataset.CLASSES)
        assert set(dataset.image_list) <= set(table.lists)
        for code, pattern in dataset.image_list.items():
            assert all(pattern.format("all") in file for file in table.lists[code].values())
            assert table.folders[code] == [entry[0] for entry in dataset.download_list]
