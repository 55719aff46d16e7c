"""Adaptation learns what it can reach: frozen parts, contexts without gradients, heads; else one line says why."""

import contextlib

import numpy as np
import pytest
import torch
from torch import nn

from tests.support.networks import PIXELS, PREPROCESSING, QUICK, Net, normalised, state_of
from tests.support.refusals import one_line
from tllib_ancon import adapt, online, predict

FAST = {**QUICK, **PREPROCESSING}
WITHOUT = [torch.inference_mode, torch.no_grad]


# A caller inside a context without gradients


@pytest.mark.parametrize("method", ["tent", "adabn", "eta", "roid", "stream-auto"])
def test_a_stream_adapts_inside_inference_mode(method):
    batches = normalised(PIXELS[:24]).split(8)
    model = nn.Sequential(nn.BatchNorm2d(3), Net()).eval()  # its first layer learns
    stream = online(model, method=method)
    expected = [stream(batch) for batch in batches]
    for context in WITHOUT:
        with context():
            inside = online(model, method=method)
            for batch, outputs in zip(batches, expected, strict=True):
                torch.testing.assert_close(inside(batch.clone()), outputs)
            inside.reset()
            torch.testing.assert_close(inside(batches[0].clone()), expected[0])


@pytest.mark.parametrize("context", WITHOUT)
def test_adapt_and_predict_work_inside_inference_mode(context):
    expected = adapt(Net().eval(), PIXELS, **FAST).model
    with context():
        model = Net().eval()
        result = adapt(model, PIXELS, **FAST).model
        adapt(model, normalised().clone(), augment=lambda batch: batch.flip(-1), **QUICK)
        inside = predict(result, PIXELS, **PREPROCESSING, workers=0).probabilities
    torch.testing.assert_close(state_of(result), state_of(expected))
    outside = predict(expected, PIXELS, **PREPROCESSING, workers=0).probabilities
    np.testing.assert_allclose(inside, outside, atol=1e-6)


# A model that computes without gradients


class Probe(Net):
    """A body in a context."""

    def __init__(self, context=torch.no_grad):
        super().__init__()
        self.context = context

    def forward(self, images):
        with self.context():
            features = self.body(images)
        return self.head(features)


@pytest.mark.parametrize(
    ("model", "settings", "advice"),
    [
        (Probe(), {}, 'pass `adapted="all"`'),
        (Probe(torch.inference_mode), {}, "remove that context"),
        (Probe(torch.inference_mode), {"adapted": "all"}, "remove that context"),
    ],
)
def test_a_loss_without_a_gradient_gets_a_line_and_its_advice_leads_on(model, settings, advice, tmp_path):
    log = tmp_path / "run"
    for method in ("ancon-auto", "shot"):
        with one_line(rf"no parameter that learns reaches the loss.*{advice}"):
            adapt(model, PIXELS, method=method, log=str(log), **FAST, **settings)
    assert not log.exists()
    model.context = contextlib.nullcontext if "context" in advice else model.context
    result = adapt(model, PIXELS, adapted="all", **FAST).model
    assert not torch.equal(result.head.weight, model.head.weight)


REACHES_NOTHING = (
    r"^no parameter that learns reaches the loss: the model's forward computes it under torch\.no_grad\(\), "
    r"torch\.inference_mode\(\) or an operation without a gradient, such as argmax; remove that context or "
    r"operation from "
    'the forward, or in adapt pass `adapted="all"`, which also trains the parameters outside it$'
)


@pytest.mark.parametrize("method", ["tent", "roid"])
def test_a_stream_without_a_gradient_gets_a_line_and_its_advice_leads_on(method):
    model = Probe().eval()
    with one_line(REACHES_NOTHING):
        online(model, method=method, batch_norm="target")(normalised())
    model.context = contextlib.nullcontext
    online(model, method=method, batch_norm="target")(normalised())


# Heads


def test_a_model_that_is_its_head_alone_learns_it():
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4))
    result = adapt(model, PIXELS, method="ancon", **FAST)
    assert not torch.equal(result.model[2].weight, model[2].weight)
    assert result.config.adapted == "all"


# One value for each channel of batch-norm


@pytest.mark.parametrize("method", ["ancon-auto", "shot", "tent", "adabn"])
def test_one_image_gets_a_line_and_its_advice_leads_on(method):
    model = nn.Sequential(nn.Conv2d(3, 4, 32), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2)).eval()
    with one_line(r"batch-norm needs .* more than one image; pass more images"):
        adapt(model, PIXELS[:1], method=method, **FAST)
    adapt(model, PIXELS[:4], method=method, **FAST)
