"""Adaptation learns what it can reach: frozen parts, contexts without gradients, heads; else one line says why."""

import contextlib

import numpy as np
import pytest
import timm
import torch
from torch import nn

from tests.networks import PIXELS, PREPROCESSING, QUICK, Net, normalised, state_of
from tests.support.refusals import one_line
from tllib_ancon import adapt, online, predict
from tllib_ancon.models.classifier import as_classifier

FAST = {**QUICK, **PREPROCESSING}
WITHOUT = [torch.inference_mode, torch.no_grad]


# A caller inside a context without gradients


@pytest.mark.parametrize("method", ["tent", "adabn", "eta", "roid", "ancon-auto"])
def test_a_stream_adapts_inside_inference_mode(method):
    batches = normalised(PIXELS[:24]).split(8)
    stream = online(Net().eval(), method=method)
    expected = [stream(batch) for batch in batches]
    for context in WITHOUT:
        with context():
            inside = online(Net().eval(), method=method)
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


class NeverLearns(Net):
    @torch.no_grad()
    def forward(self, images):
        return super().forward(images)


@pytest.mark.parametrize(
    ("model", "settings", "advice"),
    [
        (Probe(), {}, "Pass `adapted=all`"),
        (Probe(), {"adapted": "norm-affine"}, "Pass `adapted=all`"),
        (Probe(torch.inference_mode), {}, "Remove that context"),
        (Probe(torch.inference_mode), {"adapted": "all"}, "Remove that context"),
        (NeverLearns(), {}, "Remove that context"),
        (NeverLearns(), {"adapted": "all"}, "Remove that context"),
    ],
)
def test_a_loss_without_a_gradient_gets_a_line_and_its_advice_leads_on(model, settings, advice, tmp_path):
    log = tmp_path / "run"
    for method in ("ancon-auto", "shot"):
        with one_line(rf"no parameter that learns with `adapted=.*` reaches the loss.*{advice}"):
            adapt(model, PIXELS, method=method, log=str(log), **FAST, **settings)
    assert not log.exists()
    if isinstance(model, Probe):
        model.context = contextlib.nullcontext if "context" in advice else model.context
        result = adapt(model, PIXELS, adapted="all", **FAST).model
        assert not torch.equal(result.head.weight, model.head.weight)


# Heads


def test_a_model_that_is_its_head_alone_learns_it(capsys):
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4))
    result = adapt(model, PIXELS, method="ancon", **{**FAST, "quiet": False}).model
    assert not torch.equal(result[2].weight, model[2].weight)
    assert "the head has all parameters of the model; it learns" in capsys.readouterr().err


def test_a_model_without_a_head_can_do_without_features(capsys):
    model = nn.Sequential(nn.Conv2d(3, 4, 32), nn.Flatten())
    images = normalised()
    assert adapt(model, images, adapted="all", **QUICK).selected_epoch == 1
    assert capsys.readouterr().err == ""
    assert adapt(model, images, **{**QUICK, "quiet": False}).selected_epoch == 1
    assert "ends in no Linear layer that could be its head; all of it learns" in capsys.readouterr().err
    with one_line("no Linear layer as its head"):
        adapt(model, images, method="nrc", **QUICK)


def test_both_heads_of_a_distilled_transformer_are_the_head():
    torch.manual_seed(0)
    options = {"img_size": 32, "patch_size": 16, "embed_dim": 24, "depth": 1, "num_heads": 2, "num_classes": 4}
    model = timm.models.deit.VisionTransformerDistilled(**options).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.05)
    images = normalised(PIXELS[:4])
    classifier = as_classifier(model, probe=images).eval()
    assert (classifier.head_name, classifier.features_dim) == ("head,head_dist", 48)
    logits, features = classifier.predict(images)
    torch.testing.assert_close(classifier.head(features), logits)
    assert as_classifier(model, head="head,head_dist", probe=images).head_name == classifier.head_name


# One value for each channel of batch-norm


@pytest.mark.parametrize("method", ["ancon-auto", "shot", "tent", "adabn"])
def test_one_image_gets_a_line_and_its_advice_leads_on(method):
    body = nn.Conv2d(3, 4, 32), nn.BatchNorm2d(4)
    model = nn.Sequential(*body, nn.Flatten(), nn.Linear(4, 2)).eval()
    with one_line(r"batch-norm needs .* more than one image; pass more images"):
        adapt(model, PIXELS[:1], method=method, **FAST)
    adapt(model, PIXELS[:4], method=method, **FAST)
