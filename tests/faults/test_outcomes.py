"""Two runs are the same only where every file of theirs has the same content, to the bit."""

import numpy as np
import torch

from tests.faults.outcomes import differences, outcome


def test_any_bit_and_any_file_is_compared(tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        torch.save({"weight": torch.zeros(3), "step": 1}, tmp_path / name / "model.pth")
        np.savez(tmp_path / name / "votes.npz", votes=np.arange(3))
        (tmp_path / name / "metrics.jsonl").write_text(f'{{"loss": 0.5, "images_per_second": {len(name)}}}\n')
        (tmp_path / name / "out.csv").write_text("path,label\na,1\n")
        (tmp_path / name / "result.json").write_text("{}")
    assert differences(outcome(tmp_path / "first"), outcome(tmp_path / "second")) == []
    torch.save({"weight": torch.tensor([0.0, -0.0, 0.0]), "step": 1}, tmp_path / "second/model.pth")
    np.savez(tmp_path / "second/votes.npz", votes=np.array([0, 1, 3]))
    (tmp_path / "second/metrics.jsonl").write_text('{"loss": 0.25}\n')
    (tmp_path / "second/out.csv").write_text("path,label\na,2\n")
    (tmp_path / "second/left.partial").write_text("")
    (tmp_path / "second/result.json").write_text("")
    assert sorted(differences(outcome(tmp_path / "first"), outcome(tmp_path / "second"))) == [
        "/left.partial (missing)",
        "/metrics.jsonl[0]/loss",
        "/model.pth/weight",
        "/out.csv[1][1]",
        "/result.json",
        "/votes.npz/votes",
    ]
