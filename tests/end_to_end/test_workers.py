"""How many processes load images."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.domains_on_disk import small_arguments
from tllib_ancon.cli.main import main
from tllib_ancon.data.worker_pool import WorkerPool


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The workers of each pool that was started."""
    numbers: list[int] = []
    start = WorkerPool._start

    def counted(self: WorkerPool) -> None:
        numbers.append(self.workers)
        start(self)

    monkeypatch.setattr(WorkerPool, "_start", counted)
    return numbers


def test_an_adaptation_has_as_many_as_it_was_told(domains, source_checkpoint, tmp_path: Path, started) -> None:
    more = ["-t", "dark", "--checkpoint", str(source_checkpoint), "--method", "nrc", "-j", "2", "--epochs", "2"]
    assert main(["adapt", *small_arguments(domains), *more, "--log", str(tmp_path / "run")]) == 0
    assert started == [2]


def test_training_on_two_domains_has_as_many_for_each(domains, tmp_path: Path, started) -> None:
    more = ["-t", "dark", "--method", "cdan", "-j", "1", "--epochs", "2", "-i", "2"]
    assert main(["pretrain", *small_arguments(domains), *more, "--log", str(tmp_path / "run")]) == 0
    assert started == [1, 1]
