"""A stream inside a program of one's own: modes that the program sets, buffers that it reuses, frames of any size."""

import pytest
import torch
from torch import nn

from tests.refusals import one_line
from tllib_ancon import online

METHODS = ("tent", "adabn", "eta", "roid", "ancon-auto")


def dense():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(), nn.Conv2d(8, 4, 1)).eval()


def classifier():
    return nn.Sequential(*dense(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4)).eval()


def batches(size, count=12):
    return torch.randn(size * count, 3, 8, 8).add(0.5).split(size)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("settings", [{}, {"batch_norm": "target"}], ids=str)
@pytest.mark.parametrize("size", [8, 80])
def test_the_mode_that_a_program_sets_changes_no_prediction(method, settings, size):
    stream = batches(size)
    expected = [*map(online(classifier(), method, **settings), stream)]
    for mode in ("train", "eval"):
        adapting = online(classifier(), method, **settings)
        program = nn.ModuleList([adapting])
        for batch, outputs in zip(stream, expected, strict=True):
            getattr(program, mode)()
            assert adapting.training == (mode == "train")
            assert torch.equal(adapting(batch), outputs)


@pytest.mark.parametrize("method", ["tent", "adabn"])
def test_a_dense_model_adapts_in_any_mode(method):
    stream = batches(4, 3)
    expected = [*map(online(dense(), method), stream)]
    for mode in (True, False):
        adapting = online(dense(), method).train(mode)
        for batch, outputs in zip(stream, expected, strict=True):
            assert torch.equal(adapting(batch), outputs)


@pytest.mark.parametrize("method", METHODS)
def test_frames_in_a_buffer_that_is_used_again(method):
    adapting = online(classifier(), method)
    with_buffer = online(classifier(), method)
    buffer = torch.empty(1, 3, 8, 8)
    for frame in batches(1, 80):
        assert torch.equal(with_buffer(buffer.copy_(frame)), adapting(frame))
    estimate = "statistics.estimates.0.mean"
    assert torch.equal(with_buffer.state_dict()[estimate], adapting.state_dict()[estimate])


def test_small_batches_of_several_sizes_get_a_line_and_its_advice_leads_on():
    adapting = online(classifier())
    frames = [torch.randn(1, 3, 8 + number % 2, 8) for number in range(80)]
    adapting(frames[0])
    with one_line(r"shape \(1, 3, 9, 8\) comes after \(1, 3, 8, 8\).*; convert images to one size"):
        adapting(frames[1])
    for frame in frames:
        adapting(nn.functional.interpolate(frame, (8, 8)))
