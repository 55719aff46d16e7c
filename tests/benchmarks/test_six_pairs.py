from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.evidence.six_pairs import main
from tests.report.fabricated import write_run


def test_pairs_of_other_settings_count_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for pair, epochs, gain in (("A-D", 5, 2.0), ("D-A", 2, 4.0)):
        for seed in (0, 1):
            write_run(tmp_path, "self-training", pair, seed, (30.0, 50.0), epochs=epochs)
            write_run(tmp_path, "ancon", pair, seed, (30.0, 50.0 + gain), epochs=epochs)
    assert main([str(tmp_path)]) == 0
    assert "| ancon − self-training | 3.00 | 0.58 | 4 | 0 | 0.1250 |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("methods", "epochs", "said"),
    [(("self-training", "ancon"), (5, 2), "different settings"), (("ancon",), (5,), "nothing to compare")],
)
def test_what_cannot_be_compared_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    methods: tuple[str, ...],
    epochs: tuple[int, ...],
    said: str,
) -> None:
    for method, count in zip(methods, epochs, strict=True):
        write_run(tmp_path, method, epochs=count)
    assert main([str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
