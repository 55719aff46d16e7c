from __future__ import annotations

from pathlib import Path

import pytest

from tests.domains_on_disk import small_arguments, write_domains
from tllib_ancon.cli.main import main


@pytest.fixture(scope="session")
def domains(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_domains(tmp_path_factory.mktemp("domains"))


@pytest.fixture(scope="session")
def source_checkpoint(domains: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = tmp_path_factory.mktemp("source") / "run"
    assert main(["pretrain", *small_arguments(domains), "--epochs", "12", "--log", str(log)]) == 0
    return log / "checkpoints" / "best.pth"
