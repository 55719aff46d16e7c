"""The grid of rates for a transformer, on a few digits."""

from pathlib import Path

from benchmarks import transformer_rate


def test_a_row_for_each_rate(tmp_path: Path, monkeypatch) -> None:
    few = list(transformer_rate.handwritten_digits())[:128]
    small = {"RATES": {"sgd": (0.01,), "adamw": (1e-4, 1.0)}, "METHODS": ("ancon",), "SEEDS": (0,), "PART": 1}
    for name, value in {**small, "SOURCE_EPOCHS": 1, "EPOCHS": 1}.items():
        monkeypatch.setattr(transformer_rate, name, value)
    for name in ("rendered_digits", "handwritten_digits"):
        monkeypatch.setattr(transformer_rate, name, lambda: few)
    transformer_rate.main([str(tmp_path)])
    _, _, *rows = (tmp_path / "transformer_rate.md").read_text().splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[:3] for row in cells] == [
        ["ancon", "sgd", "0.01"],
        ["ancon", "adamw", "0.0001"],
        ["ancon", "adamw", "1"],
    ]
    assert len({row[3] for row in cells}) == 1
    assert len({row[4] for row in cells}) > 1
