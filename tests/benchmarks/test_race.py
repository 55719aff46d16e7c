"""The race measures each package once, and notes one that is missing."""

import multiprocessing
import subprocess

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.cifar10_c.networks import ResNet
from benchmarks.race import __main__ as race
from benchmarks.race import measure, works


def test_a_run_is_measured_and_what_is_not_there_is_said(tmp_path, monkeypatch, capsys):
    ours = works.Entry("ours", "ours_tensors", "tent", beside="ours", settings={"batch_size": 8})
    entries = [ours, works.Entry("theirs", "tent")]
    monkeypatch.setattr(works, "CORRUPTIONS", ("fog",))
    monkeypatch.setitem(works.WORKS, "cifar10-c", (entries, works.cifar10_c))
    folder = tmp_path / "cifar10"
    folder.mkdir()
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    np.savez(folder / "test.npz", x=images, y=np.arange(40) % 10)
    torch.manual_seed(0)
    state = ResNet(blocks=1).state_dict()
    weights = {f"module.{name}": value for name, value in state.items()}
    torch.save({"state_dict": weights}, folder / "resnet20-0.th")

    def called(words):
        """In a fork of this process, which has imported all this."""
        process = multiprocessing.get_context("fork").Process(target=measure.main, args=words)
        process.start()
        process.join()
        if process.exitcode:
            raise subprocess.CalledProcessError(process.exitcode, words, stderr="No module named 'tent'")

    monkeypatch.setattr(race, "measured", called)
    kept = ["--out", str(tmp_path / "race.csv"), "--code", str(tmp_path)]
    words = ["cifar10-c", str(tmp_path), *kept, "--epochs", "2", "--images", "40"]
    race.main(words)
    ours, theirs = pd.read_csv(tmp_path / "race.csv").itertuples()
    assert 0 < ours.processor_s <= ours.seconds + 1
    assert ours.first_step_processor_s > 0
    assert ours.images_s == pytest.approx(ours.images / ours.processor_s, rel=1e-3)
    assert ours.peak_mb > 100
    assert ours.accuracy_before % 2.5 == 0
    assert theirs.error == "No module named 'tent'"
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("| ours", "| theirs"))]
    assert [row.split(" | ")[-2:] for row in rows] == [["1.00", "1.00 – 1.00 |"]]
