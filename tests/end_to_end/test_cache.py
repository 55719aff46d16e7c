from __future__ import annotations

import json
from pathlib import Path

import torch

from tests.domains_on_disk import small_arguments
from tllib_ancon.cli.main import main


def test_a_run_with_a_cache_is_the_run_without(domains: Path, source_checkpoint: Path, tmp_path: Path) -> None:
    start = ["-t", "dark", "--checkpoint", str(source_checkpoint), "--epochs", "1"]
    cache = ["--cache", str(tmp_path / "cache")]
    for name, more in (("without", []), ("with", cache)):
        log = ["--log", str(tmp_path / name), *more]
        assert main(["adapt", *small_arguments(domains), *start, *log]) == 0
    first, second = (
        torch.load(tmp_path / name / "checkpoints" / "latest.pth", weights_only=True) for name in ("without", "with")
    )
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert len(list((tmp_path / "cache").glob("16px-*"))) == 1

    arguments = [word for word in small_arguments(domains) if word not in ("-s", "bright", "--quiet")]
    for name, more in (("without", []), ("with", cache)):
        checkpoint = ["-t", "dark", "--checkpoint", str(source_checkpoint), "--json", str(tmp_path / f"{name}.json")]
        assert main(["evaluate", *arguments, *checkpoint, *more]) == 0
    assert json.loads((tmp_path / "with.json").read_text()) == json.loads((tmp_path / "without.json").read_text())
