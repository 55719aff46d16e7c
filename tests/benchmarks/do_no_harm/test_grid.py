from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.do_no_harm import grid
from tllib_ancon.config import AdaptConfig
from tllib_ancon.data.open import open_domain


def test_every_way_to_every_target_is_a_run_that_can_be_opened_again(tmp_path: Path, monkeypatch, capsys) -> None:
    made: list[AdaptConfig] = []
    stored: list[Path] = []
    monkeypatch.setattr(grid, "pretrain", lambda config: None)
    summary = {"start": {"accuracy": 60.0}, "selected": {"accuracy": 70.0}}

    def adapt(start: str, **settings: Any) -> SimpleNamespace:
        made.append(AdaptConfig(checkpoint=start, **settings))
        return SimpleNamespace(summary=summary)

    monkeypatch.setattr(grid, "adapt", adapt)
    monkeypatch.setattr(grid, "store", lambda run, alphas: stored.append(run))
    grid.main([str(tmp_path), "--seeds", "0", "--epochs", "2"])
    shown = capsys.readouterr().out
    assert shown.count("70.0, +0.0, worst +10.0") == len(grid.TARGETS) * (len(grid.WAYS) - 1)
    assert len(made) == len(set(stored)) == len(grid.TARGETS) * len(grid.WAYS)
    assert [Path(config.log) for config in made] == stored
    assert {config.epochs for config in made} == {2}
    sizes = {}
    for config in made:
        domain = open_domain(config.root, config.data, config.target, allow_outside=True)
        assert domain.num_classes == 10
        sizes[Path(config.log).parent.name] = len(domain)
    assert sizes["handwritten"] == sizes["handwritten-full-rate"] == 1797
    assert sizes["no-shift"] == 400
    assert sizes["few-classes"] == pytest.approx(1797 * 0.4, rel=0.05)
    made.clear()
    grid.main([str(tmp_path), "--seeds", "0", "--options", "pull 0.01"])
    assert "## ancon-auto, 1 seeds" in capsys.readouterr().out
    assert sorted((config.pull, config.epochs) for config in made) == [(0, 12)] * 5 + [(0.01, 12)] * 5
