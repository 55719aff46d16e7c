from pathlib import Path

import pytest

from benchmarks.evidence.beside import main

RUNS = """pair,start,method,seed,start_accuracy,start_ece,accuracy,ece
A-D,erm,ancon,0,40.0,0.1,50.0,0.1
A-D,erm,ancon,1,40.0,0.1,52.0,0.1
A-D,erm,shot,0,40.0,0.1,53.0,0.2
A-D,erm,shot,1,40.0,0.1,51.0,0.1
A-D,erm,shot,2,40.0,0.1,99.0,0.1
"""


@pytest.fixture
def lists(tmp_path: Path) -> list[str]:
    """The report's list, and the digits', in which the start is a method."""
    (tmp_path / "runs.csv").write_text(RUNS)
    (tmp_path / "more.csv").write_text(RUNS.replace("A-D", "W-D").replace("53.0", "57.0"))
    (tmp_path / "digits.csv").write_text("pair,method,seed,accuracy,ece\nM-U,ancon,0,60.0,0.1\nM-U,elr,0,60.0,0.1\n")
    return [str(tmp_path / name) for name in ("runs.csv", "more.csv", "digits.csv")]


@pytest.mark.parametrize(
    ("method", "row"),
    [
        ("ancon", "| shot − ancon | 2.00 | 1.00 | 2 | 0.2952 | 0.2952 | 2 | 2 | -1.00 | 0.0500 | 0.0000 |"),
        ("source-only", "| ancon − source-only | 11.00 | 0.00 | 2 | 0.0000 | 0.0000 | 4 | 0 | 10.00 |"),
    ],
)
def test_a_method_beside_all_others_over_pairs(lists: list[str], method: str, row: str, capsys) -> None:
    main([*lists, "--to", method])
    assert row in capsys.readouterr().out


def test_the_kept_table_is_what_the_kept_lists_give(capsys) -> None:
    results = Path(__file__).parents[2] / "benchmarks" / "results"
    main([str(results / name) for name in ("office31_128.csv", "office31_128_to_amazon.csv")])
    printed = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if " − " in line]
    expected = [f"{label} | {float(mean):+.2f} ± {error}".replace("-", "−") for label, mean, error, *_ in printed]
    page = (results / "office31_128.md").read_text().partition("## All six pairs")[2].replace("-", "−")
    assert len(expected) == 43
    assert [row for row in expected if f"| {row} |" not in page] == []
