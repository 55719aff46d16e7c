"""A stream inside a program of one's own: modes, reused buffers, frames of any size, and a source model that fails."""

import warnings

import pytest
import torch
from torch import nn

from tests.support.falls import CLASSES, striped_source_model, stripes
from tests.support.networks import normalised
from tllib_ancon import online

METHODS = ("tent", "adabn", "eta", "roid", "stream-auto")


def dense():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(), nn.Conv2d(8, 4, 1)).eval()


def classifier():
    return nn.Sequential(*dense(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4)).eval()


def batches(size, count=12):
    return torch.randn(size * count, 3, 8, 8).add(0.5).split(size)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [8, 80])
def test_the_mode_that_a_program_sets_changes_no_prediction(method, size):
    stream = batches(size)
    expected = [*map(online(classifier(), method), stream)]
    for mode in ("train", "eval"):
        adapting = online(classifier(), method)
        program = nn.ModuleList([adapting])
        for batch, outputs in zip(stream, expected, strict=True):
            getattr(program, mode)()
            assert adapting.training == (mode == "train")
            assert torch.equal(adapting(batch), outputs)


def test_samples_that_wait_for_a_step_are_of_one_size():
    adapting = online(classifier())
    for side in (8, 12):
        for _ in range(4):
            assert adapting(torch.randn(20, 3, side, side)).shape == (20, 4)
    assert adapting.collected == []  # 80 samples of the second size were a batch


def accuracy(brightness, **settings):
    """Of a shuffled stream of stripes, in percent, and its notes but for their texts."""
    images = normalised(stripes(640, brightness, 1)).split(64)
    labels = (torch.arange(640) % CLASSES).split(64)
    adapting = online(striped_source_model(), **settings)
    is_right = [adapting(batch).argmax(1) == classes for batch, classes in zip(images, labels, strict=True)]
    adapting(images[0][::CLASSES].repeat(CLASSES, 1, 1, 1))  # a batch of one class after others
    notes = [(note.code, note.setting, note.level) for note in adapting.notes]
    return 100 * torch.cat(is_right).float().mean().item(), notes


NOTHING_LEARNT = (
    "^nothing was learnt from the first 5 batches, which were predicted by mixed batch-norm statistics: their "
    'predicted classes are far from equally frequent; unless the stream is sorted by class, pass `batch_norm="target"`$'
)


def test_a_source_model_that_fails_on_a_stream_gets_one_warning_whose_advice_helps():
    with pytest.warns(UserWarning, match=NOTHING_LEARNT) as caught:
        by_default, codes = accuracy(brightness=0.15)
    assert len(caught) == 1
    assert codes == [("nothing-learnt", "batch_norm", "warning")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with_advice, codes = accuracy(brightness=0.15, batch_norm="target")
        assert with_advice > by_default + 10
        assert codes == accuracy(brightness=0.8)[1] == []
