"""Two runs are the same only where every file of theirs has the same content, to the bit."""

import numpy as np
import torch

from tests.faults.outcomes import differences, outcome


def write(folder, weight, votes, metrics):
    folder.mkdir()
    torch.save({"weight": torch.tensor(weight), "step": 1}, folder / "model.pth")
    np.savez(folder / "votes.npz", votes=np.array(votes))
    (folder / "metrics.jsonl").write_text(metrics)
    return outcome(folder, "*")


def test_any_bit_and_any_file_is_compared(tmp_path):
    first = write(tmp_path / "first", [0.0, 0.0], [0, 1], '{"loss": 0.5, "images_per_second": 1}')
    same = write(tmp_path / "same", [0.0, 0.0], [0, 1], '{"loss": 0.5, "images_per_second": 2}')
    assert differences(first, same) == []
    other = write(tmp_path / "other", [0.0, -0.0], [0, 2], '{"loss": 0.25}')
    del same["votes.npz"]
    assert sorted(differences(first, other)) == ["/metrics.jsonl[0]/loss", "/model.pth/weight", "/votes.npz/votes"]
    assert differences(first, same) == ["/votes.npz (missing)"]
