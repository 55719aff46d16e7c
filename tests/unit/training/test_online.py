"""A stream adapts by the equations of its method, and keeps what the source model has."""

import copy

import pytest
import torch
from torch import nn

import tllib_ancon
from tests.support.killable import differences
from tests.support.networks import fit
from tests.support.refusals import one_line

METHODS = ("tent", "adabn", "eta", "roid", "stream-auto")


def network():
    torch.manual_seed(0)
    body = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()
    model = nn.Sequential(*body, nn.Flatten(), nn.Linear(8 * 36, 4))
    model[-1].weight.data.mul_(5)  # some predictions are certain
    return model


def stream(count=10):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(16, 3, 8, 8, generator=generator) + 0.5 for _ in range(count)]


def naive_tent(model, batches, lr):
    """Entropy minimisation of scale and shift with batch statistics; each output is that before its step."""
    model = copy.deepcopy(model).train().requires_grad_(False)
    norm = model[1]
    norm.requires_grad_(True)
    norm.track_running_stats = False
    norm.running_mean = None
    norm.running_var = None
    optimizer = torch.optim.Adam(norm.parameters(), lr=lr)
    outputs = []
    for batch in batches:
        logits = model(batch)
        loss = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        outputs.append(logits.detach())
    return outputs


ONE_SAMPLE = (
    "^a batch of one sample has no batch-norm statistics; collect at least two samples, or pass "
    "`batch_norm=.mixed.` for "
    "a model with running statistics$"
)


def test_tent_is_its_definition_over_ten_batches():
    model = network()
    adapting = tllib_ancon.online(model, method="tent", lr=1e-2, batch_norm="target")
    for found, expected in zip(map(adapting, stream()), naive_tent(model, stream(), 1e-2), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    with one_line(ONE_SAMPLE):
        adapting(stream(1)[0][:1])


@pytest.mark.parametrize("method", METHODS)
def test_the_given_model_stays_a_reset_restores_and_a_state_continues(method):
    model = network()
    before = copy.deepcopy(model.state_dict())
    batches = stream(13)  # three steps of 64 samples
    adapting, continued = (tllib_ancon.online(model, method=method, lr=1e-2) for _ in range(2))
    first = [adapting(batch) for batch in batches]
    assert differences(dict(before), dict(model.state_dict())) == []
    scale = adapting.model[1].weight
    assert torch.equal(scale, model[1].weight) == (method == "adabn")
    adapting.reset()
    for number, (batch, expected) in enumerate(zip(batches, first, strict=True)):
        if number == 6:
            continued.load_state_dict(adapting.state_dict())
            adapting = continued
        torch.testing.assert_close(adapting(batch), expected)
    assert "model.1.weight" in adapting.state_dict()


LEARNING = ["tent", "eta", "roid", "stream-auto"]


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        (network(), {"method": "tnet"}, "did you mean 'tent'"),
        (network(), {"batch_norm": "targets"}, "Input should be 'mixed' or 'target'"),
        (
            nn.Linear(3, 2),
            {},
            "^`method=.roid.` needs normalisation layers, and this model has none; pass a model with them$",
        ),
    ],
)
def test_what_cannot_adapt_to_a_stream(model, settings, message):
    with one_line(message):
        tllib_ancon.online(model, **settings)


@pytest.mark.parametrize("method", LEARNING)
def test_a_bad_batch_is_an_error_and_changes_nothing(method):
    adapting = tllib_ancon.online(network(), method=method)
    first, second = stream(2)
    adapting(first)
    again = copy.deepcopy(adapting)
    with_nan = torch.where(first > 2, torch.nan, first)
    for size in (1, 16):
        with one_line("^predictions or loss of this batch are not finite; leave out samples with NaN$"):
            adapting(with_nan[:size])
    with one_line("^predictions or loss of this batch are not finite; leave out samples with NaN$"):
        adapting(torch.cat([with_nan] * 4))
    assert torch.equal(adapting(second), again(second))


CLASSES = 4


def drawn(classes, shift, seed):
    """Noisy images with a pattern for each class."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randn(CLASSES, 3, 8, 8, generator=generator)
    noise = torch.randn(len(classes), 3, 8, 8, generator=generator.manual_seed(seed))
    return patterns[classes] + 2 * noise + shift


@pytest.fixture(scope="module")
def source_model():
    """A network that has learnt the patterns."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 16),
        nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, CLASSES),
    )  # fmt: skip
    classes = torch.arange(64) % CLASSES
    return fit(model, ((drawn(classes, 0, 10 + step), classes) for step in range(60)))


def accuracy(model, classes, batch_size):
    """Of the predictions of a stream in this order."""
    images = drawn(classes, 0.5, 1)
    with torch.no_grad():
        predicted = torch.cat([model(batch).argmax(1) for batch in images.split(batch_size)])
    return 100 * (predicted == classes).double().mean().item()


IN_TURN = torch.arange(768) % CLASSES


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("batch_size", [96, 1])
def test_a_sorted_stream_keeps_what_the_source_model_has(method, batch_size, source_model):
    classes = IN_TURN.sort().values
    adapting = tllib_ancon.online(source_model, method)
    assert accuracy(adapting, classes, batch_size) >= accuracy(source_model, classes, batch_size) - 1
    if batch_size == 96:
        published = tllib_ancon.online(source_model, method, batch_norm="target")
        assert accuracy(published, classes, batch_size) < accuracy(source_model, classes, batch_size) - 10
