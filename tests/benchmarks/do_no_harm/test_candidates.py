from pathlib import Path

import pytest
import torch

from benchmarks.do_no_harm import candidates, round2
from benchmarks.do_no_harm.candidates import interpolated
from benchmarks.do_no_harm.round2 import stored
from tests.domains_on_disk import small_arguments, write_domains
from tllib_ancon.cli.main import main

NAMES = ["epoch-000", "epoch-001", "epoch-002", "adabn", "mixed-0.5"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with the models and logits of its epochs."""
    folder = tmp_path_factory.mktemp("candidates")
    domains = write_domains(folder / "domains")
    assert main(["pretrain", *small_arguments(domains), "--epochs", "2", "--log", str(folder / "source/erm")]) == 0
    log = folder / "runs" / "bright-dark" / "ancon-seed0"
    start = ["-t", "dark", "--checkpoint", str(folder / "source/erm/checkpoints/best.pth"), "--epochs", "2"]
    kept = ["--save-epochs", "--save-logits", "--log", str(log)]
    assert main(["adapt", *small_arguments(domains), *start, *kept]) == 0
    return log


def test_every_candidate_is_stored_with_its_probes_and_judged(run: Path, monkeypatch, capsys) -> None:
    before = stored(run)
    candidates.main([str(run), "--alphas", "0.5", "-b", "16", "-j", "0"])
    after = stored(run)
    assert list(after) == NAMES
    for name, saved in before.items():
        torch.testing.assert_close(after[name]["logits"], saved["logits"], rtol=1e-5, atol=1e-5)
        assert torch.equal(after[name]["labels"], saved["labels"])
    for saved in after.values():
        assert saved["dropout"].shape == (10, *saved["logits"].shape)
        assert len(saved["mixed"]) == len(saved["first"]) > 0
        predictions = saved["logits"].argmax(1)
        assert (predictions[saved["first"]] == predictions[saved["second"]]).any()
    assert not torch.allclose(after["adabn"]["logits"], after["epoch-000"]["logits"], atol=1e-2)
    capsys.readouterr()
    round2.main([str(run.parents[1])])
    shown = capsys.readouterr().out
    assert all(f"| {name} | 1 |" in shown for name in ("mixval", "aetta", "dropout_agreement", "asr", "ensv"))
    monkeypatch.setattr(candidates, "measured", lambda *_: pytest.fail("it was made again"))
    candidates.main([str(run), "--alphas", "0.5", "-b", "16", "-j", "0"])


def test_weights_between_two_models() -> None:
    first = {"weight": torch.tensor([0.0, 2.0]), "count": torch.tensor(3)}
    last = {"weight": torch.tensor([4.0, 0.0]), "count": torch.tensor(9)}
    mixed = interpolated(first, last, 0.25)
    assert mixed["weight"].tolist() == [1.0, 1.5]
    assert mixed["count"] == 9
