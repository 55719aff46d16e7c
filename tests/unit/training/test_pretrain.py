"""The losses of a source model are their equations, and flags reach them."""

import json

import pytest
import torch

from tests.support.domains_on_disk import small_arguments
from tests.support.json_files import read_json
from tllib_ancon.cli.main import main
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.self_training.pseudo_label import belief_matching_loss
from tllib_ancon.training.pretrain import _source_loss

LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.0, 3.0, -2.0]])
LABELS = torch.tensor([0, 2])


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_label_smoothing(smoothing):
    """(1 - s) and s / K on the true class, s / K on each other."""
    targets = (1 - smoothing) * torch.eye(3)[LABELS] + smoothing / 3
    loss = _source_loss(PretrainConfig(label_smoothing=smoothing))(LOGITS, LABELS)
    torch.testing.assert_close(loss, -(targets * LOGITS.log_softmax(1)).sum(1).mean())


def test_belief_matching():
    loss = _source_loss(PretrainConfig(loss="belief-matching", belief_coefficient=0.2))(LOGITS, LABELS)
    torch.testing.assert_close(loss, belief_matching_loss(LOGITS, LABELS, 0.2))


def test_the_flags_reach_the_loss(domains, tmp_path):
    losses = set()
    flags = ("", "--label-smoothing 0.1", "--loss belief-matching --belief-coefficient 0.01")
    for number, more in enumerate(flags):
        log = tmp_path / str(number)
        words = [*small_arguments(domains), "--epochs", "1", "--log", str(log)]
        assert main(["pretrain", *words, *more.split()]) == 0
        losses.add(json.loads((log / "metrics.jsonl").read_text().splitlines()[0])["loss"])
    assert len(losses) == len(flags)


def test_a_digit_network_has_its_size_by_default_and_another_is_one_line(domains, tmp_path, refused):
    words = f"pretrain {domains} -d ImageList -s bright -a shot_lenet --epochs 1 -b 8".split()
    assert main([*words, "--log", str(tmp_path / "run")]) == 0
    assert read_json(tmp_path / "run" / "config.json")["image_size"] == 28
    error = refused([*words, "--image-size", "32", "--log", str(tmp_path / "other")])
    assert "the model cannot be called on images of shape (8, 1, 32, 32)" in error
    assert "--image-size sets the size of files and pixels" in error
    assert not (tmp_path / "other").exists()
