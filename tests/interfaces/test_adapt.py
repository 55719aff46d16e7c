"""Every way into an adaptation makes the same run, and a call that makes no sense is refused with what to pass."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import tllib_ancon
from tests.support.killable import differences
from tests.support.networks import SIDE, Net, state_of
from tests.support.refusals import REFUSED, one_line, refused
from tllib_ancon.cli.main import main
from tllib_ancon.config.adapt import AdaptConfig

CLASSES = 3
IMAGES = 20
QUICK = {"epochs": 1, "batch_size": 4, "workers": 0, "quiet": True, "seed": 3}
GENERATOR = torch.Generator().manual_seed(0)
TARGET = TensorDataset(torch.randn(IMAGES, 3, SIDE, SIDE, generator=GENERATOR), torch.arange(IMAGES) % CLASSES)


def net():
    return Net(CLASSES)


def test_a_run_directory_changes_nothing_and_is_gone_on_with(tmp_path):
    log = tmp_path / "run"
    plain = tllib_ancon.adapt(net(), TARGET, **QUICK)
    assert "accuracy" not in plain.metrics[0]
    for _ in range(2):
        result = tllib_ancon.adapt(net(), TARGET, **QUICK, log=log)
        assert differences(state_of(plain.model), state_of(result.model)) == []
        assert (log / "result.json").is_file()
    with one_line("other settings"):
        tllib_ancon.adapt(nn.Sequential(net(), nn.Linear(CLASSES, CLASSES)), TARGET, **QUICK, log=log)


def test_every_way_in_makes_the_same_run(domains, source_checkpoint, tmp_path):
    """The command, keywords and a configuration; and the model knows how its images look."""
    start = str(source_checkpoint)
    words = ["adapt", str(domains), "-d", "ImageList", "-t", "dark", "--checkpoint", start, "--no-hflip", "--quiet"]
    assert main([*words, "-b", "16", "-j", "0", "--epochs", "2", "--log", str(tmp_path / "command")]) == 0
    settings = {"root": str(domains), "data": "ImageList", "target": ["dark"], "checkpoint": start, "no_hflip": True}
    settings |= {"batch_size": 16, "workers": 0, "epochs": 2, "quiet": True}
    called = tllib_ancon.adapt(**settings, log=tmp_path / "call")
    configured = tllib_ancon.adapt(config=AdaptConfig(**settings))
    written = torch.load(tmp_path / "command" / "checkpoints" / "best.pth", weights_only=True)
    for result in (called, configured):
        assert differences(dict(result.model.state_dict()), written) == []
    dark = tllib_ancon.data.open_domain(str(domains), "ImageList", ["dark"])
    expected = tllib_ancon.predict(tmp_path / "call", dark, workers=0).probabilities
    found = tllib_ancon.predict(called.model, dark, workers=0).probabilities
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        *REFUSED["adaptations"],
        ({"config": AdaptConfig()}, "pass AdaptConfig alone"),
        (
            {"train_transform": nn.Identity()},
            "`evaluation_transform` is needed as well; pass one transform for training and one for evaluation",
        ),
    ],
)
def test_what_is_refused(changed, message):
    with refused(message):
        tllib_ancon.adapt(**{"model": net(), "images": TARGET, **QUICK, **changed})
