"""The published numbers are those that the papers print, cell by cell, and every file of them is read."""

import configparser
import csv
import re
from importlib.resources import files
from pathlib import Path

import pytest

import tllib_ancon.laboratory.published as numbers
from tests.support.places import ROOT, SHARED

FOLDER = files("tllib_ancon.laboratory") / "paper"
LABELS = {"method", "start"}
NINE = ["self-training", "elr", "ancon", "gce", "gce+elr", "gce+ancon", "nrc", "nrc+elr", "nrc+ancon"]
SEVERITIES = [f"imagenet_c_{severity}" for severity in range(1, 6)]
METHODS = {
    "office31": NINE,
    "officehome": NINE,
    "officehome_ece": NINE[:6],
    "visda": ["source-only", *NINE],
    "uda": ["source-only", *NINE[:3]] * 2,
    **dict.fromkeys(SEVERITIES, NINE[:3]),
}
LATEX_LABELS = {
    "office31": "table:sfda:o31",
    "officehome": "table:sfda:oh",
    "officehome_ece": "table:oh:ece",
    "visda": "table:sfda:visda",
    "uda": "uda_benchmark",
    **{name: f"tab:intens{name[-1]}" for name in SEVERITIES},
}


def records(name):
    return list(csv.DictReader((FOLDER / f"{name}.csv").read_text(encoding="utf-8").splitlines()))


@pytest.mark.parametrize("table", METHODS)
def test_every_cell_is_the_one_printed(table):
    """Columns stand in the printed order."""
    path = SHARED / "paper" / "ancon.tex"
    if not path.is_file():
        pytest.skip("the paper's source is not beside this checkout")
    source = path.read_text(encoding="utf-8").partition(f"\\label{{{LATEX_LABELS[table]}}}")[2]
    lines = source.partition("\\end{tabular}")[0].split("\\\\")
    printed = [re.findall(r"\d+\.\d\d", line.partition("&")[2]) for line in lines]
    transcribed = records(table)
    columns = [name for name in transcribed[0] if name not in LABELS]
    assert [[record[name] for name in columns] for record in transcribed] == [row for row in printed if row]
    head_line = next(line for line in lines if re.search(r"\bMethod\b.*&", line))
    _, *heads = head_line.split("&")
    for head, column in zip(heads, columns, strict=True):
        name = head.strip().strip("{}").lower()
        assert name.startswith("av") or column.lower().startswith(name.replace("2", "-"))


@pytest.mark.parametrize("table", METHODS)
def test_rows_are_the_papers_methods_and_are_read_as_they_stand(table):
    transcribed = records(table)
    assert [record["method"] for record in transcribed] == METHODS[table]
    for record, (index, row) in zip(transcribed, numbers.published(table).iterrows(), strict=True):
        assert index == (record.pop("method"), record.pop("start", ""))
        assert row.to_dict() == {name: float(text) for name, text in record.items()}


def test_the_files_are_package_data_and_each_is_read():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert "laboratory/paper/*.csv" in setup["options.package_data"]["tllib_ancon"].split()
    names = [entry.name for entry in FOLDER.iterdir()]
    assert {Path(name).stem for name in names if name.endswith(".csv")} == {*METHODS}
