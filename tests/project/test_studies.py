"""A study writes one row of the schema for each run and number of views, and resumes."""

import subprocess

import numpy as np
import pandas as pd
import pytest

from benchmarks import __main__ as benchmarks
from benchmarks import study, tomllib
from benchmarks.families import FAMILIES, Family, Labelled
from tllib_ancon.runtime.errors import UserError

SCHEMA = {
    *("study", "family", "source", "target", "kind", "network", "images", "classes", "method", "settings_sha256"),
    *("seed", "epochs", "views", "start", "adabn", "last", "selected", "upper", "ece", "per_epoch", "seconds"),
    *("commit", "python", "torch", "pillow", "device", "date"),
}
STUDY = """
question = "?"
seeds = [0]
epochs = [1]
images = 60

[methods]
"source model" = { method = "none" }
self-training = { method = "self-training", criterion = "last" }
taught = { method = "self-training", criterion = "last", teacher = true }

[longer]
seeds = [0]
epochs = [2]
every = 2

[[cells]]
family = "stripes"
pairs = ["light > dark", "light > none"]
kinds = ["equal"]
teacher = { source = "dark" }
"""


def stripes(data, *domains):
    """Horizontal or vertical stripes, or a plane, dark or light."""
    generator = np.random.default_rng(0)
    labels = np.arange(120) % 3
    images = generator.integers(0, 60, (120, 16, 16), dtype=np.uint8)
    images[labels == 0, ::4] += 120
    images[labels == 1, :, ::4] += 120
    return Labelled(images // 2 if domains[-1] == "dark" else images, labels)


@pytest.fixture
def command(monkeypatch, tmp_path):
    monkeypatch.setitem(FAMILIES, "stripes", Family(3, 16, "pooled", stripes, stripes, mirror=True, steps=20))
    monkeypatch.setattr(study, "STUDIES", tmp_path)
    monkeypatch.setattr(benchmarks, "JUDGED", tmp_path / "benchmarks" / "judged.csv")
    (tmp_path / "benchmarks").mkdir()
    for name in ("tiny.toml", "benchmarks/judged.csv"):
        (tmp_path / name).write_text(STUDY if name == "tiny.toml" else "")
    commit_all(tmp_path)
    return ["run", "tiny", "--data", str(tmp_path), "--out", str(tmp_path / "out")]


def commit_all(folder):
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (["init", "-q"], ["add", "*.toml", "benchmarks"], [*identity, "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=folder, check=True)


def test_a_study_writes_the_schema_and_resumes(command, tmp_path):
    benchmarks.main(command)
    rows = study.read("tiny", tmp_path / "out")
    assert set(rows) == SCHEMA
    runs = [("dark", 1), ("none", 1), ("dark", 2)]
    assert len(rows) == len(runs) * 3 * 2  # methods, views
    assert (tmp_path / "out" / "sources" / "stripes-dark-pooled-seed0.pt").exists()
    adapted = rows[(rows.method == "self-training") & (rows.views == 1)]
    assert list(zip(adapted.target, adapted.epochs, strict=True)) == runs
    for row in adapted.itertuples():
        assert len(row.per_epoch.split()) == row.epochs + 1
        assert row.selected == row.last
        assert row.selected == float(row.per_epoch.split()[-1])
    source_models = rows[rows.method == "source model"]
    assert (source_models.selected == source_models.start).all()

    file = tmp_path / "out" / "tiny.csv"
    whole = file.read_text()
    file.write_text("".join(whole.splitlines(keepends=True)[:-2]))
    benchmarks.main(command)
    again = pd.read_csv(file).drop(columns="seconds")
    assert again.equals(study.read("tiny", tmp_path / "out")[again.columns])
    assert len(again) == len(rows)
    before = file.read_text()
    benchmarks.main(command)
    assert file.read_text() == before


def test_judge_data_are_used_on_record_alone(command, tmp_path):
    (tmp_path / "tiny.toml").write_text("judge = true" + STUDY)
    commit_all(tmp_path)
    with pytest.raises(UserError, match="--reason"):
        benchmarks.main(command)
    benchmarks.main([*command, "--reason", "a rule is ready"])
    benchmarks.main(command)
    header = tomllib.loads((tmp_path / "out" / "tiny.toml").read_text())
    row = f"{header['date']},{header['commit']},tiny,a rule is ready,\n"
    assert (tmp_path / "benchmarks" / "judged.csv").read_text() == row
    (tmp_path / "tiny.toml").write_text("judge = true" + STUDY.replace("self-training", "shot"))
    with pytest.raises(UserError, match="-dirty"):
        benchmarks.main(command)


@pytest.mark.parametrize("path", sorted(study.STUDIES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_study_plans_each_run_once(path):
    runs = study.Study.load(path.stem).runs()
    assert runs
    assert len({run.key for run in runs}) == len(runs)
    assert {run.cell.family for run in runs} <= set(FAMILIES)
