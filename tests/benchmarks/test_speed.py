"""The speed benchmark's loops learn what the package learns, and each figure is printed and stored."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks.speed import epochs, images, step
from benchmarks.speed.__main__ import MEASUREMENTS, main
from benchmarks.speed.timing import row
from tllib_ancon.self_training import AnchoredConfidence

SCENE = epochs.Scene("small CNN", "small_cnn", 16, 24, 8)


def test_the_command_prints_each_measurement_and_keeps_it(tmp_path: Path, monkeypatch, capsys) -> None:
    for name in MEASUREMENTS:
        monkeypatch.setitem(MEASUREMENTS, name, lambda **_: [row("speed", [1.5, 2, 2.5], "x", at_least=3)])
    assert main(["--out", str(tmp_path)]) == 0
    assert "1.75 – 2.25" in (shown := capsys.readouterr().out)
    assert shown.count("≥ 3  NOT MET") == len(MEASUREMENTS)
    written = json.loads((tmp_path / "speed.json").read_text())
    assert list(written["figures"]) == list(MEASUREMENTS)
    assert written["figures"]["step"][0]["met"] is False
    assert main(["--only", "step", "epochs", "--out", str(tmp_path)]) == 0
    assert list(json.loads((tmp_path / "speed.json").read_text())["figures"]) == ["step", "epochs"]


def test_a_step_in_parts_learns_what_the_whole_step_learns() -> None:
    whole, parts = (step.TrainingStep("ancon", "small_cnn", 16, "cpu") for _ in range(2))
    start = [parameter.clone() for parameter in parts.model.parameters()]
    for _ in range(3):
        whole()
        parts.in_parts()
    assert any(not torch.equal(*pair) for pair in zip(start, parts.model.parameters(), strict=True))
    assert all(torch.equal(*pair) for pair in zip(parts.model.parameters(), whole.model.parameters(), strict=True))
    plain, added, judged, _ = step.measure(rounds=2)
    assert judged.value == pytest.approx(1 + added.value / plain.value)


def test_the_usual_loop_learns_and_counts_the_votes_that_ancon_counts(tmp_path: Path) -> None:
    domain = images.draw_domain(tmp_path, 24)
    loop = epochs.UsualLoop(SCENE, domain, tmp_path, workers=0)
    ancon = AnchoredConfidence(24, epochs.NUM_CLASSES)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        indices, logits = torch.randperm(24, generator=generator)[:8], torch.randn(8, epochs.NUM_CLASSES)
        torch.testing.assert_close(loop.targets(indices, logits), ancon(indices, logits))
    start = [parameter.clone() for parameter in loop.model.parameters()]
    loop()
    assert loop.images == 24
    assert any(not torch.equal(*pair) for pair in zip(start, loop.model.parameters(), strict=True))


def test_epochs_are_compared_image_by_image(tmp_path: Path) -> None:
    ways = [epochs.Way("plain"), epochs.Way("fast", False, {"mixed_precision": "bf16"}, {"at_least": 3})]
    domain = images.draw_domain(tmp_path, 24)
    usual, plain, fast = epochs.compare(SCENE, ways, domain, tmp_path, rounds=1, workers=0)
    assert (usual.unit, plain.unit, plain.at_least, fast.at_least) == ("images/s", "x", None, 3)
    assert all(row.value > 0 for row in (usual, plain, fast))
