"""What a training loop measures are means over its steps, and a line shows them."""

import re
import sys
import time

import torch

from tests.support import small
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


def test_bars_show_each_pass_of_an_adaptation_and_leave(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    small.adapt(quiet=False, epochs=2, criterion="last")
    states = re.split(r"[\r\n]+", capsys.readouterr().err)
    passes = ["epoch 0/2, predictions", "epoch 1/2", "epoch 1/2, predictions", "epoch 2/2", "epoch 2/2, predictions"]
    bars = [f"{title}:   0%|          | 0/6 [00:00<?, ?step/s]" for title in passes]
    assert [state for state in states if "|" in state] == bars
    assert sum(state.isspace() for state in states) == len(bars)
