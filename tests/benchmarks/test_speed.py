"""A measured step learns what a step learns, and each figure is printed and stored."""

import time

import pandas as pd
import pytest
import torch

from benchmarks.speed import cost, step
from benchmarks.speed.__main__ import main
from benchmarks.speed.timing import row


def test_the_command_prints_each_row_and_stores_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(step, "measure", lambda: [row("a step", [1.5, 2, 2.5], "ms")])
    main(["--out", str(tmp_path / "speed.csv")])
    assert "1.75" in capsys.readouterr().out
    (written,) = pd.read_csv(tmp_path / "speed.csv").itertuples()
    assert (written.median, written.third_quartile) == (2, 2.25)


def test_a_step_in_parts_learns_what_a_whole_step_learns():
    parts, whole = (step.TrainingStep("ancon", "small_cnn", 16, "cpu", time.thread_time) for _ in range(2))
    start = [parameter.clone() for parameter in parts.model.parameters()]
    parts()
    indices = torch.randint(step.NUM_SAMPLES, (step.BATCH,), generator=whole.generator)
    whole.method(indices, *whole.model(whole.images)).backward()
    whole.optimizer.step()
    in_parts = [*parts.model.parameters()]
    assert any(not torch.equal(*pair) for pair in zip(start, in_parts, strict=True))
    assert all(torch.equal(*pair) for pair in zip(in_parts, whole.model.parameters(), strict=True))
    plain, added, judged = step.measure(rounds=2)
    assert judged.median == pytest.approx(1 + added.median / plain.median)


def test_the_cost_of_an_adaptation_is_measured_and_other_networks_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(cost, "NETWORKS", (cost.NETWORKS[0]._replace(images=(64,)), cost.NETWORKS[1]))
    file = tmp_path / "cost.csv"
    file.write_text("network,pixels,images,start_s,epoch_s,predict_s,memory_gb\nMobileNetV2,224,64,1,2,3,4\n")
    cost.main([str(file), "--only", "ResNet-20"])
    rows = pd.read_csv(file)
    assert rows.network.tolist() == ["MobileNetV2", "ResNet-20"]
    assert list(rows) == list(pd.read_csv(cost.__file__.replace(".py", ".csv")))
    assert (rows[["epoch_s", "predict_s", "memory_gb"]] > 0).all().all()
    assert "| MobileNetV2, 224 pixels | 64 | 2 | 1 | 3.0 | 4.0 |" in cost.table(rows)
