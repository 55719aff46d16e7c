"""What is chosen on three families is judged on the fourth, beside the start and other packages."""

import json

import numpy as np
import pandas as pd
from PIL import Image

from benchmarks.left_out import grid, table
from benchmarks.left_out.families import MAKERS, Cell, write_emoji


def runs(**accuracies):
    """Of each variant, by family, the last accuracies of its cells from a start of 50."""
    rows = []
    for variant, accuracies_of_family in accuracies.items():
        for family, values in accuracies_of_family.items():
            for number, last in enumerate(values):
                cell = Cell(family, f"pair{number}", "equal")
                rows.append((*cell, variant, 800, 50.0, last, last, f"50.0 {last} {last}", last, 1.0))
    return pd.DataFrame(rows, columns=grid.COLUMNS)


def test_what_is_chosen_on_three_families_is_judged_on_the_fourth():
    made = runs(
        a={"w": [90.0], "x": [60.0], "y": [60.0], "z": [60.0]},
        b={"w": [50.0], "x": [70.0], "y": [70.0], "z": [70.0]},
    )
    chosen = table.left_out(made, ["a", "b"])
    assert dict(zip(chosen.index, chosen["chosen"], strict=True)) == {"w": "b", "x": "a", "y": "a", "z": "a"}
    assert chosen["accuracy"].tolist() == [50.0, 60.0, 60.0, 60.0]


def test_the_table_says_how_often_a_variant_ends_below_its_start():
    of_self_training = {"w": [40.0, 60.0], "x": [80.0]}
    of_ancon_auto = {"w": [50.0, 70.0], "x": [81.0]}
    made = runs(**{"self-training": of_self_training, "ancon-auto": of_ancon_auto})
    lines = table.markdown_of(made).splitlines()
    assert lines[2].startswith("| start | 50.0 | 50.0 | 50.0 |")
    assert lines[3] == "| self-training | 50.0 | 80.0 | 65.0 |  | 1 of 3, -10.0 |"
    assert "| self-training | 50.0 | 80.0 | 65.0 | -7.0 ± 3.0 |" in table.markdown_of(made, "ancon-auto")
    assert lines[4] == "| ancon-auto | 60.0 | 81.0 | 70.5 | +7.0 ± 3.0 | 0 of 3, +0.0 |"


def test_beside_methods_over_corruptions_stand_the_packages_of_the_race(tmp_path, capsys):
    made = runs(**{"self-training": {"cifar10-c": [40.0, 60.0]}})
    made.replace({"pair0": "resnet20-fog-5", "pair1": "resnet20-snow-5"}).to_csv(tmp_path / "runs.csv", index=False)
    rows = []
    for title, after in (("Tent", 70.0), ("ancon", 99.0), ("skada DeepCoral", np.nan)):
        for case in ("fog", "snow"):
            rows.append(("cifar10-c-fifteen", title, case, 0, 50.0, after))
    columns = ["work", "title", "case", "seed", "accuracy_before", "accuracy_after"]
    rows.append(("cifar10-c", "Tent", "fog", 0, 50.0, 0.0))
    pd.DataFrame(rows, columns=columns).to_csv(tmp_path / "race.csv")
    table.main([str(tmp_path / "runs.csv"), "--pairs", "--race", str(tmp_path / "race.csv")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].startswith("| self-training | 50.0 ± 10.0 |")
    assert lines[4:] == ["| Tent | 70.0 ± 0.0 | +20.0 ± 10.0 | 70.0 (resnet20-fog-5) |"]


def test_no_emoji_is_both_a_source_and_a_target(tmp_path):
    groups = {"Animals & Nature": 6, "Objects": 5, "Flags": 3}
    emoji = []
    for group, number in groups.items():
        for place in range(number):
            name = f"{group[0]}{place}"
            makers = {f"has_img_{maker}": True for maker in MAKERS}
            emoji.append({"unified": name, "image": f"{name}.png", "category": group, **makers})
    emoji[0]["has_img_google"] = False
    for maker in MAKERS:
        pictures = tmp_path / "makers" / maker / "img" / maker / "64"
        pictures.mkdir(parents=True)
        (tmp_path / "makers" / maker / "emoji.json").write_text(json.dumps(emoji))
        for entry in emoji:
            Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(pictures / entry["image"])
    write_emoji(tmp_path / "makers", tmp_path / "emoji")
    for maker in MAKERS:
        parts = [sorted((tmp_path / "emoji" / f"{maker}-{part}").rglob("*.png")) for part in ("source", "target")]
        names = [path.name for part in parts for path in part]
        assert sorted(names) == sorted(entry["image"] for entry in emoji[1:-3])
        assert len(parts[0]) == len(parts[1])
    assert np.asarray(Image.open(parts[0][0])).min() == 255
