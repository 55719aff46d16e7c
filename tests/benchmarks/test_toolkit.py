"""The table of TLLib's own scripts shows each method beside the model without adaptation."""

import json

import pandas as pd

from benchmarks.toolkit import table
from tests.support.refusals import one_line


def test_a_row_for_each_script_and_pair_with_the_differences(tmp_path, capsys):
    for method, accuracy in (("ancon", 81.25), ("self-training", 68.0)):
        folder = tmp_path / "runs" / "cdan-A-W" / method
        folder.mkdir(parents=True)
        selected = {"accuracy": accuracy, "ece": 0.125}
        result = {"start": {"accuracy": 70.5, "ece": 0.25}, "selected": selected, "selected_epoch": 2}
        (folder / "result.json").write_text(json.dumps(result))
    table.main([str(tmp_path), "--csv", str(tmp_path / "runs.csv")])
    assert capsys.readouterr().out.splitlines()[-1] == "| `cdan.py` | A → W | 70.5 | 68.0 (−2.5) | 81.2 (+10.8) | – |"
    (first, second) = pd.read_csv(tmp_path / "runs.csv").itertuples(index=False)
    assert tuple(first) == ("cdan.py", "A-W", "ancon", 70.5, 0.25, 81.25, 0.125, 2)
    assert second.method == "self-training"


def test_a_folder_without_runs_is_one_line(tmp_path):
    with one_line(r"give the folder that run\.sh wrote to"):
        table.main([str(tmp_path)])
