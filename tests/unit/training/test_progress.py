"""What a training loop measures are means over its steps, and a line shows them."""

import time

import torch

from tllib_ancon.training.progress import Meters, Progress


def test_meters_are_means_over_the_steps_and_the_latest_threshold(monkeypatch, capsys):
    monkeypatch.setattr(time, "perf_counter", iter([1.0, 3.0]).__next__)
    meters = Meters(torch.device("cpu"))
    for loss, votes, threshold in ((1.0, 0.25, 0.5), (3.0, 0.75, 0.75)):
        diagnostics = {"votes": torch.tensor(votes), "threshold": torch.tensor(threshold)}
        meters.add(torch.tensor(loss), torch.zeros(2, 3), diagnostics)
    metrics = meters.read(batch_size=5)
    assert metrics == {"loss": 2.0, "votes": 0.5, "threshold": 0.75, "images_per_second": 5.0}
    Progress().epoch({"epoch": 1, **metrics, "accuracy": 50.0}, total=3)
    assert "epoch 1/3  loss 2.0000  δ 0.750  votes  50%  accuracy 50.00 %  5 images/s" in capsys.readouterr().err
