"""What a training of a source model reads, holds out, tells and records; and what it lacks is one line."""

import json

import pytest
import torch
from PIL import Image

from tests.support.domains_on_disk import training
from tests.support.json_files import read_json
from tests.support.killable import differences
from tests.support.refusals import REFUSED, one_line
from tllib_ancon.cli.main import main
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.models.checkpoints import load_state_dict
from tllib_ancon.self_training.pseudo_label import belief_matching_loss
from tllib_ancon.toolkit.toolkit import find
from tllib_ancon.training.pretrain import _result_of, _source_loss, pretrain

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


def test_a_digit_network_has_its_size_by_default_and_another_is_one_line(domains, tmp_path, refused):
    words = f"pretrain {domains} -d ImageList -s bright -a shot_lenet --epochs 1 -b 8".split()
    assert main([*words, "--log", str(tmp_path / "run")]) == 0
    assert read_json(tmp_path / "run" / "config.json")["image_size"] == 28
    error = refused([*words, "--image-size", "32", "--log", str(tmp_path / "other")])
    assert "the model cannot be called on images of shape (8, 1, 32, 32)" in error
    assert "--image-size sets the size of files and pixels" in error
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(("settings", "message"), REFUSED["trainings"])
def test_what_a_training_lacks_is_one_line(settings, message):
    with one_line(f"^{message}$"):
        pretrain(PretrainConfig(**settings))


def test_the_result_names_how_its_epoch_is_chosen():
    first, last = ({"accuracy": accuracy} for accuracy in (2.0, 1.0))
    of_erm = {"criterion": "accuracy on held-out source images", "checkpoint": "best.pth", "selected": first}
    of_mdd = {"criterion": "none: the last epoch", "checkpoint": "latest.pth", "selected": last}
    for method, chosen in (("erm", of_erm), ("mdd", of_mdd)):
        assert _result_of(method, [first, last]) == {"method": method, **chosen, "last": last}


def read(path):
    return Image.open(path)


def test_a_training_tells_its_notes_records_what_it_reads_and_follows_its_seed(copied, tmp_path, capsys):
    (copied / "dark" / "red" / "000.png").unlink()
    log = tmp_path / "run"
    settings = training(copied, log, method="cdan", seed=3, iters_per_epoch=1, skip_corrupt=True)
    states = []
    for number in range(2):
        torch.manual_seed(number)
        pretrain(settings.replace(overwrite=number > 0), loader=read)
        assert "1 of the 48 images of domain dark are left out" in capsys.readouterr().err
        states.append(load_state_dict(log / "checkpoints" / "latest.pth"))
        record = read_json(log / "config.json")
        (log / "config.json").write_text(json.dumps({**record, "padding": 3}))
    pretrain(settings, loader=read)  # its record decides what is left out
    assert differences(*states) == []
    assert (record["command"], record["toolkit"], record["padding"]) == ("pretrain", find().name, 0)
    assert record["inputs"]["loader"] == f"{__name__}:read"
    assert [*record["inputs"]["images"]] == ["bright", "dark"]
    with one_line("holds images, and a run directory is no part of a dataset"):
        pretrain(settings.replace(log=copied / "dark"))
    with one_line("^domain bright: its images have no labels"):
        pretrain(settings.replace(data="Folder"))
