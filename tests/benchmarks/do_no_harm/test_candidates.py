from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.do_no_harm import candidates, round2
from benchmarks.do_no_harm.candidates import estimate_statistics, interpolated
from tests.domains_on_disk import small_arguments, write_domains
from tllib_ancon.cli.main import main
from tllib_ancon.training.dropout_scores import PASSES
from tllib_ancon.training.saved_logits import read_logits

NAMES = ["epoch-000", "epoch-001", "epoch-002", "adabn", "mixed-0.5"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with the models and logits of its epochs."""
    folder = tmp_path_factory.mktemp("candidates")
    domains = write_domains(folder / "domains")
    assert main(["pretrain", *small_arguments(domains), "--epochs", "4", "--log", str(folder / "source/erm")]) == 0
    log = folder / "runs" / "bright-dark" / "ancon-seed0"
    start = ["-t", "dark", "--checkpoint", str(folder / "source/erm/checkpoints/best.pth"), "--epochs", "2"]
    kept = ["--save-epochs", "--save-logits", "--log", str(log)]
    assert main(["adapt", *small_arguments(domains), *start, *kept]) == 0
    return log


def test_every_candidate_is_stored_with_its_probes_and_judged(run: Path, capsys) -> None:
    before = read_logits(run)
    assert candidates.main([str(run), "--alphas", "0.5", "-b", "16", "-j", "0"]) == 0
    after = read_logits(run)
    assert list(after) == NAMES
    for name, saved in before.items():
        np.testing.assert_allclose(after[name].logits, saved.logits, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(after[name].labels, saved.labels)
    for saved in after.values():
        assert saved.dropout.shape == (PASSES, *saved.logits.shape)
        assert len(saved.mixed) == len(saved.first) > 0
        predictions = saved.logits.argmax(1)
        assert (predictions[saved.first] == predictions[saved.second]).any()
    assert not np.allclose(after["adabn"].logits, after["epoch-000"].logits, atol=1e-2)
    capsys.readouterr()
    assert round2.main([str(run.parents[1])]) == 0
    shown = capsys.readouterr().out
    assert all(f"| {name} | 1 |" in shown for name in ("mixval", "aetta", "dropout_agreement", "asr", "ensv"))


def test_what_is_stored_is_not_made_again(run: Path, monkeypatch) -> None:
    assert candidates.main([str(run), "--alphas", "0.5", "-b", "16", "-j", "0"]) == 0
    monkeypatch.setattr(candidates, "measured", lambda *_: pytest.fail("it was made again"))
    assert candidates.main([str(run), "--alphas", "0.5", "-b", "16", "-j", "0"]) == 0


def test_weights_between_two_models() -> None:
    first = {"weight": torch.tensor([0.0, 2.0]), "count": torch.tensor(3)}
    last = {"weight": torch.tensor([4.0, 0.0]), "count": torch.tensor(9)}
    mixed = interpolated(first, last, 0.25)
    assert mixed["weight"].tolist() == [1.0, 1.5]
    assert mixed["count"] == 9


def test_statistics_are_the_means_over_batches() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.5))
    batches = [torch.randn(5, 2, generator=torch.Generator().manual_seed(seed)) + seed for seed in range(3)]
    estimate_statistics(model, [*batches, torch.full((1, 2), 1e6)])
    expected = torch.stack([batch.mean(0) for batch in batches]).mean(0)
    torch.testing.assert_close(model[0].running_mean, expected)
    torch.testing.assert_close(model[0].running_var, torch.stack([batch.var(0) for batch in batches]).mean(0))
    assert model[0].momentum == 0.1
    assert not any(module.training for module in model.modules() if module is not model)


def test_what_is_refused(run: Path, tmp_path: Path, capsys) -> None:
    assert candidates.main([str(tmp_path)]) == 2
    assert "is not a run directory" in capsys.readouterr().err
    assert candidates.main([str(run), "--alphas", "1"]) == 2
    assert "between 0 and 1" in capsys.readouterr().err
    copy = shutil.copytree(run, tmp_path / "copy")
    for path in (copy / "checkpoints").glob("epoch-*.pth"):
        path.unlink()
    assert candidates.main([str(copy)]) == 2
    assert "make it with `save_epochs=True`" in capsys.readouterr().err
