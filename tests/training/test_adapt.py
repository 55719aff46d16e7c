"""Every way into an adaptation makes the same run, and a call that makes no sense is refused with what to pass."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import tllib_ancon
from tests.conftest import REFUSED
from tests.end_to_end.killable import differences
from tests.networks import HALVES, SIDE, Net, state_of
from tests.support.refusals import one_line
from tllib_ancon.cli.main import main
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.runtime.errors import UserError

CLASSES = 3
IMAGES = 20
QUICK = {"epochs": 1, "batch_size": 4, "workers": 0, "quiet": True, "seed": 3}
GENERATOR = torch.Generator().manual_seed(0)
TARGET = TensorDataset(torch.randn(IMAGES, 3, SIDE, SIDE, generator=GENERATOR), torch.arange(IMAGES) % CLASSES)


def net():
    return Net(CLASSES)


def test_neither_labels_nor_a_run_directory_change_anything_and_the_run_is_gone_on_with(tmp_path):
    log = tmp_path / "run"
    plain = tllib_ancon.adapt(net(), TARGET, **QUICK)
    assert "accuracy" not in plain.metrics[0]
    labels = TARGET.tensors[1].tolist()
    for settings in ({"labels": labels}, {"log": log}, {"log": log}):
        result = tllib_ancon.adapt(net(), TARGET, **QUICK, **settings)
        assert differences(state_of(plain.model), state_of(result.model)) == []
        assert ("accuracy" in result.metrics[0]) == ("labels" in settings)
        # A run with labels predicts the whole target, others the sample: other batches, which round differently.
        scores = [[epoch["infomax"] for epoch in run.metrics] for run in (result, plain)]
        np.testing.assert_allclose(*scores, rtol=0, atol=1e-9)
    assert (log / "result.json").is_file()
    with one_line("other settings"):
        tllib_ancon.adapt(nn.Sequential(net(), nn.Linear(CLASSES, CLASSES)), TARGET, **QUICK, log=log)
    with one_line("cannot be made longer: the learning rate of each step depends on how many"):
        tllib_ancon.adapt(net(), TARGET, **{**QUICK, "epochs": 2}, log=log)


def test_every_way_in_makes_the_same_run(domains, source_checkpoint, tmp_path):
    """The command, keywords and a configuration; and the model knows how its images look."""
    start = str(source_checkpoint)
    words = ["adapt", str(domains), "-d", "ImageList", "-t", "dark", "--checkpoint", start, "--no-hflip", "--quiet"]
    assert main([*words, "-b", "16", "-j", "0", "--epochs", "2", "--log", str(tmp_path / "command")]) == 0
    settings = {"root": str(domains), "data": "ImageList", "target": ["dark"], "checkpoint": start, "no_hflip": True}
    settings |= {"batch_size": 16, "workers": 0, "epochs": 2, "quiet": True}
    called = tllib_ancon.adapt(**settings, log=tmp_path / "call")
    configured = tllib_ancon.adapt(AdaptConfig(**settings))
    written = torch.load(tmp_path / "command" / "checkpoints" / "best.pth", weights_only=True)
    for result in (called, configured):
        assert differences(dict(result.model.state_dict()), written) == []
    dark = tllib_ancon.data.open_domain(str(domains), "ImageList", ["dark"])
    expected, found = (tllib_ancon.predict(model, dark, workers=0) for model in (tmp_path / "call", called.model))
    np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=1e-6)


class Endless(Dataset):
    def __getitem__(self, index):
        return torch.zeros(3, SIDE, SIDE)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        *REFUSED["adaptations"],
        ({"model": nn.Flatten(0)}, "logits"),
        ({"images": Endless()}, "length"),
        ({"model": torch.jit.script(nn.Flatten())}, "pass the torch.nn.Module that it was made from"),
        ({"model": AdaptConfig()}, "not both"),
        ({"config": AdaptConfig()}, "not both"),
        ({"train_transform": nn.Identity()}, "`evaluation_transform` is needed"),
    ],
)
def test_what_is_refused(changed, message):
    with pytest.raises(UserError) as error:
        tllib_ancon.adapt(**{"model": net(), "images": TARGET, **QUICK, **changed})
    assert message in str(error.value)


# What images a network sees that nothing is known of


@pytest.mark.parametrize(("side", "in_training"), [(16, "shifted by up to 2 pixels"), (64, "cropped at random")])
def test_arrays_keep_their_size_and_are_seen_whole(side, in_training, capsys):
    generator = np.random.default_rng(0)
    pixels = 2 * generator.integers(1, 128, (8, side, side, 3), dtype=np.uint8)
    whole = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255
    seen = {True: [], False: []}
    model = net()

    def remember(module, inputs):
        (images,) = inputs
        seen[torch.is_grad_enabled()].append(images.cpu().clone())

    model.register_forward_pre_hook(remember)
    settings = {"norm_mean": (0.0,) * 3, "norm_std": (1.0,) * 3}
    result = tllib_ancon.adapt(model, pixels, **{**QUICK, "quiet": False}, **settings)
    assert result.config.image_size == side
    assert (
        f"images are resized to {side} × {side} pixels (`image_size`), in training {in_training}"
        in capsys.readouterr().err
    )
    tllib_ancon.predict(model, pixels, workers=0, **settings)
    assert torch.equal(torch.cat(seen[False])[-8:], whole)
    values = torch.cat([whole.flatten(), torch.zeros(1)])
    assert bool(torch.isin(torch.cat(seen[True]), values).all()) == ("shifted" in in_training)


@pytest.mark.parametrize(("shape", "settings", "side"), [((16, 20), {}, 224), ((16, 16), {"image_size": 24}, 24)])
def test_arrays_of_another_shape_or_with_a_setting_are_resized(shape, settings, side):
    sizes = []
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, CLASSES))
    model.register_forward_pre_hook(lambda module, args: sizes.append(args[0].shape[2:]))
    images = np.zeros((4, *shape, 3), np.uint8)
    tllib_ancon.predict(model, images, workers=0, **HALVES, **settings)
    assert {*sizes} == {(side, side)}
