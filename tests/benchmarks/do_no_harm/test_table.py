import json
from pathlib import Path

import pytest

from benchmarks.do_no_harm import table


def write(out: Path, pair: str, method: str, seed: int, accuracies: list[float], infomax: list[float]) -> None:
    folder = out / "erm" / pair / f"{method}-seed{seed}"
    folder.mkdir(parents=True)
    others = dict.fromkeys(("corr_c", "mean_entropy", "marginal_entropy", "snd"), 1.0)
    lines = [{"accuracy": a, "infomax": i, **others} for a, i in zip(accuracies, infomax, strict=True)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "result.json").write_text("{}")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write(tmp_path, "amazon-dslr", "ancon", 0, [50, 60, 55], infomax=[3, 1, 2])
    write(tmp_path, "amazon-dslr", "ancon", 1, [50, 40, 30], infomax=[1, 3, 2])
    write(tmp_path, "amazon-dslr", "self-training", 0, [50, 45, 70], infomax=[1, 2, 3])
    (tmp_path / "erm" / "amazon-dslr" / "gce-seed0").mkdir()
    (tmp_path / "erm" / "amazon-dslr" / "gce-seed0" / "metrics.jsonl").write_text("not finished")
    return tmp_path


def test_the_tables(runs: Path, capsys) -> None:
    table.main([str(runs), "--csv", str(runs / "runs.csv")])
    shown = capsys.readouterr().out.splitlines()
    assert "| amazon-dslr | 0 | 50.0 | 55.0 | 70.0 |" in shown
    assert "| amazon-dslr | 1 | 50.0 | 40.0 | – |" in shown
    assert "| infomax(1..) | 47.50 | -10.0 | 70.00 | +20.0 |" in shown
    assert "| start | 50.00 | +0.0 | 50.00 | +0.0 |" in shown
    assert "| ancon | 2 | -5.00 ± 5.00 | 0, 1 | -20.0 | -10.0 |" in shown
    assert "| self-training | 1 | +0.00 | 0, 0 | +20.0 | +20.0 |" in shown
    assert "| all | 3 | -3.33 ± 3.33 | 0, 1 | -20.0 | -10.0 |" in shown
    written = (runs / "runs.csv").read_text().splitlines()
    assert len(written) == 1 + 3 * (3 + 2 * 5)
    assert written[1] == "amazon-dslr,0,ancon,start,0,50.00,50.00"
