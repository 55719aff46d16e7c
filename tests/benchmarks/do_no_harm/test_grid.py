from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.do_no_harm import grid
from benchmarks.do_no_harm.options import TARGETS
from tllib_ancon.config import AdaptConfig
from tllib_ancon.data.domains import open_domain


def test_every_way_to_every_target_is_a_run_that_can_be_opened_again(tmp_path: Path, monkeypatch, capsys) -> None:
    made: list[AdaptConfig] = []
    stored: list[Path] = []
    monkeypatch.setattr(grid, "pretrain", lambda config: None)
    summary = {"start": {"accuracy": 60.0}, "selected": {"accuracy": 70.0}}

    def adapt(start: str, **settings: Any) -> SimpleNamespace:
        made.append(AdaptConfig(checkpoint=start, **settings))
        return SimpleNamespace(summary=summary)

    monkeypatch.setattr(grid, "adapt", adapt)
    monkeypatch.setattr(grid, "store", lambda run, alphas, batch_size, workers: stored.append(run))
    assert grid.main([str(tmp_path), "--seeds", "0", "--epochs", "2"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("70.0, +0.0, worst +10.0") == len(TARGETS) * (len(grid.WAYS) - 1)
    assert len(made) == len(set(stored)) == len(TARGETS) * len(grid.WAYS)
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
