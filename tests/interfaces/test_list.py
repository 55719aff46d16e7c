"""`tllib-ancon list` and `--help-all` show each method with its options; `check` asks the class what it can do."""

import pytest

from tllib_ancon import methods
from tllib_ancon.cli.main import main
from tllib_ancon.cli.parser import flag


def test_each_method_is_listed_with_its_options(capsys):
    assert main(["list", "methods"]) == 0
    text = capsys.readouterr().out
    blocks = {block.split()[0]: block for block in text.replace("\n  ", "\t").splitlines()}
    assert [*blocks] == [name for name in methods.names() if "+" not in name]
    for name, block in blocks.items():
        assert all(f"\t{flag(option)} " in block for option in methods.settings(name))
        assert "None" not in block.split("\t")[0]


@pytest.mark.parametrize(
    ("kind", "name"), [("networks", "resnet50"), ("layouts", "ImageFolder"), ("criteria", "infomax")]
)
def test_other_kinds_are_listed(kind, name, capsys):
    assert main(["list", kind]) == 0
    assert name in capsys.readouterr().out.split()
