from pathlib import Path

from benchmarks.evidence.beside import main


def test_the_kept_table_is_what_the_kept_lists_give(capsys) -> None:
    results = Path(__file__).parents[2] / "benchmarks" / "results"
    main([str(results / name) for name in ("office31_128.csv", "office31_128_to_amazon.csv")])
    printed = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if " − " in line]
    expected = [f"{label} | {float(mean):+.2f} ± {error}".replace("-", "−") for label, mean, error, *_ in printed]
    page = (results / "office31_128.md").read_text().partition("## All six pairs")[2].replace("-", "−")
    assert len(expected) == 43
    assert [row for row in expected if f"| {row} |" not in page] == []
