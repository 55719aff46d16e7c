"""``benchmark`` and ``report`` make a table of the paper on generated pictures in the layout of its dataset."""

import pytest

from tests.support.in_this_process import runs_here
from tests.support.json_files import read_json
from tests.support.layouts import write_list
from tllib_ancon.cli.main import main
from tllib_ancon.laboratory.plan import PlannedRun

TINY = """
[common]
arch = "small_cnn"
image-size = 16
train-resizing = "res."
val-resizing = "res."
epochs = 1
batch-size = 16
workers = 0
[source.erm]
scratch = true
bottleneck-dim = 8
epochs = 1
batch-size = 16
[adapt]
epochs = 1
batch-size = 16
"""


def tiny(folder, table, settings=TINY):
    """A plan that changes settings of a table of the paper."""
    plan = folder / f"{table}.toml"
    plan.write_text(f'extends = "{table}"\n{settings}')
    return str(plan)


@pytest.fixture(autouse=True)
def made():
    """The words of each command that a benchmark runs."""
    with runs_here() as made:
        yield made


@pytest.fixture(scope="module")
def office_home(tmp_path_factory):
    root = tmp_path_factory.mktemp("officehome")
    for name in ("Art", "Clipart"):
        write_list(root, name, images=70, classes=65)
    return root


def test_a_run_fails_the_others_are_made_and_the_same_command_makes_it_alone(
    office_home, tmp_path, made, capsys, monkeypatch
):
    out = tmp_path / "runs"
    few = ["--pairs", "Ar-Cl", "--methods", "ancon", "gce", "--seeds", "0", "--out", str(out)]
    command = ["benchmark", tiny(tmp_path, "officehome"), str(office_home), *few]
    words_of = PlannedRun.words.fget

    def without_a_start(run):
        start = ["--checkpoint", "none.pth"] if "gce" in run.name else []
        return [*words_of(run), *start]

    with monkeypatch.context() as patch:
        patch.setattr(PlannedRun, "words", property(without_a_start))
        assert main(command) == 1
    shown = capsys.readouterr()
    assert "2 of 3 runs are finished" in shown.out
    assert "failed: erm/Ar-Cl/gce-seed0: exit status 2: tllib-ancon: error:" in shown.err
    assert main(command) == 0
    assert [words[0] for words in made] == ["pretrain", "adapt", "adapt", "adapt"]
    assert "3 of 3 runs are finished" in capsys.readouterr().out
    assert main(["report", str(out), "--out", str(tmp_path / "report")]) == 0
    accuracy = read_json(out / "erm/Ar-Cl/ancon-seed0/result.json")["selected"]["accuracy"]
    assert f"{accuracy:.2f}" in (tmp_path / "report" / "report.md").read_text()
