"""The table of TLLib's own scripts shows each method beside the model without adaptation."""

import json

from benchmarks.toolkit import table


def test_a_row_for_each_script_and_pair_with_the_differences(tmp_path, capsys):
    for method, accuracy in (("ancon", 81.25), ("self-training", 68.0)):
        folder = tmp_path / "runs" / "cdan-A-W" / method
        folder.mkdir(parents=True)
        start = {"accuracy": 70.5, "ece": 0.25}
        result = {"start": start, "selected": {**start, "accuracy": accuracy}, "selected_epoch": 2}
        (folder / "result.json").write_text(json.dumps(result))
    table.main([str(tmp_path)])
    assert capsys.readouterr().out.splitlines()[-1] == "| `cdan.py` | A → W | 70.5 | 68.0 (−2.5) | 81.2 (+10.8) | – |"
