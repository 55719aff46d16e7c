"""Each design choice of the paper's Section 5 is reached by its flag: it is recorded, and it changes the model."""

import torch

from tests.support.domains_on_disk import adapt_arguments, small_arguments
from tests.support.json_files import read_json
from tests.support.killable import weights
from tllib_ancon.cli.main import main

CHOICES = [
    "--weighting entropy",
    "--weighting max-probability",
    "--weighting 0.9",
    "--weighting 0.0",
    "--temperature 1.0",
    "--mc-dropout 0.5",
    "--loss belief-matching",
    "--smoothing 0.7",
    "--method ancon-auto --batch-norm 0.5",
    "--method ancon-auto --batch-norm target",  # this source model predicts its classes equally often
    "--method shot+ancon-auto --batch-norm target",
    "--beta 0.1",
    "--schedule full",
    "--schedule half",
    "--convention paper",
    "--normalize",
]


def test_every_choice_is_recorded_makes_another_model_and_repeats_with_the_seed(domains, tmp_path):
    """From a source model of one epoch, which is not sure of anything yet."""
    source = tmp_path / "source"
    assert main(["pretrain", *small_arguments(domains), "--epochs", "1", "--log", str(source)]) == 0
    found = {}

    def adapted(choice, log):
        more = f"--epochs 3 -b 8 --lr 0.1 --method ancon {choice}".split()
        assert main(adapt_arguments(domains, source / "checkpoints" / "best.pth", log, *more)) == 0
        return weights(log)["bottleneck.0.weight"]

    for number, choice in enumerate(["", *CHOICES]):
        weight = adapted(choice, tmp_path / str(number))
        words = choice.split()
        assert [other for other in found if torch.equal(found[other], weight)] == [], choice
        found[choice] = weight
        recorded = read_json(tmp_path / str(number) / "config.json")
        for flag, value in zip(words[::2], words[1::2], strict=False):
            assert str(recorded[flag.strip("-").replace("-", "_")]) == value
    assert torch.equal(adapted("--mc-dropout 0.5", tmp_path / "again"), found["--mc-dropout 0.5"])
