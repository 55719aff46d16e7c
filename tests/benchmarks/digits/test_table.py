from __future__ import annotations

import json
from pathlib import Path

from benchmarks.digits import table


def write(out: Path, pair: str, seed: int, method: str, accuracy: float) -> None:
    folder = out / f"{pair}-seed{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{method}.json").write_text(json.dumps({"accuracy": accuracy, "ece": 0.125}))


def test_means_over_the_seeds_that_are_there(tmp_path: Path, capsys) -> None:
    for seed, accuracy in enumerate((90.0, 92.0, 94.0)):
        write(tmp_path, "MNIST-USPS", seed, "shot", accuracy)
    write(tmp_path, "USPS-MNIST", 0, "ancon", 80.0)
    assert table.main([str(tmp_path), "--csv", str(tmp_path / "runs.csv")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines.index("| ancon | – | 80.00 (1 seed) |") > lines.index("| shot | 92.00 ± 2.00 (3 seeds) | – |")
    assert "| shot, published by SHOT | 97.9 | 98.0 |" in lines
    assert (tmp_path / "runs.csv").read_text().splitlines() == [
        "pair,method,seed,accuracy,ece",
        *(f"MNIST-USPS,shot,{seed},{accuracy},0.1250" for seed, accuracy in enumerate(("90.00", "92.00", "94.00"))),
        "USPS-MNIST,ancon,0,80.00,0.1250",
    ]


def test_a_folder_of_something_else(tmp_path: Path, capsys) -> None:
    assert table.main([str(tmp_path)]) == 2
    assert "holds no PAIR-seedN/METHOD.json" in capsys.readouterr().err
