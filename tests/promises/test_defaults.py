"""Every public function and class with its default settings: two workers, mixed batch-norm statistics."""

import numpy as np
import pytest
import torch
from torch import nn

import tllib_ancon
from tests.support.arrays import CLASSES, LABELS, PIXELS, SIDE, network
from tests.support.domains_on_disk import write_domain
from tllib_ancon.cli.main import main

PIXELS += 5 * np.eye(CLASSES, dtype=np.uint8)[LABELS][:, None, None]
SMALL = {"arch": "small_cnn", "scratch": True, "image_size": SIDE}
"""A source network and the images' size, which decide how long a training takes."""


@pytest.fixture(scope="module")
def adapted():
    return tllib_ancon.adapt(network(), PIXELS)


@pytest.fixture(scope="module")
def domains(tmp_path_factory):
    root = tmp_path_factory.mktemp("domains")
    for seed, name in enumerate(("bright", "dark")):
        write_domain(root, name, 24, seed=seed, side=SIDE)
    return root


def test_adapt(adapted):
    assert (adapted.config.method, adapted.config.epochs) == ("ancon-auto", 30)


@pytest.mark.parametrize(("confidence", "method"), [(1000, "ancon"), (1e-3, "adabn")])
def test_adapt_is_ancon_by_mixed_statistics_where_the_model_is_sure(confidence, method):
    model = network()
    model.head.weight.data *= confidence
    model.head.bias.data *= confidence
    by_default = tllib_ancon.adapt(model, PIXELS, epochs=2)
    other = tllib_ancon.adapt(model, PIXELS, epochs=2, method=method, batch_norm="mixed", criterion="last")
    for name, weights in other.model.named_parameters():
        torch.testing.assert_close(by_default.model.get_parameter(name), weights)


@pytest.mark.parametrize(("share", "scale"), [(0.2, 1), (0.5, 3)])
def test_later_layers_keep_the_sources_statistics_where_a_class_is_rare_and_nothing_else_changed(share, scale):
    """The signs of two values tell the class, which none of the inputs of the first layer tells alone."""
    torch.manual_seed(0)
    inputs = nn.BatchNorm1d(2), nn.Linear(2, 4, bias=False), nn.ReLU()
    model = nn.Sequential(*inputs, nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 2, bias=False))
    model[1].weight.data = torch.tensor([[1.0, 1], [-1, -1], [1, -1], [-1, 1]])
    model[4].weight.data = torch.tensor([[1.0, 1, -1, -1], [-1, -1, 1, 1]])
    model(of_two_classes(0.5))
    result = tllib_ancon.adapt(model, scale * of_two_classes(share) + scale - 1, epochs=1)
    is_rare = share < 0.5
    assert ("classes-missing" in {note.code for note in result.notes}) == is_rare
    assert (result.metrics[-1]["batch_norm_late_share"] == 1) == is_rare


def of_two_classes(share):
    """Values (400, 2). This share has two equal signs."""
    values = torch.randn(400, 2).abs()
    values[int(share * 400) :, 1] *= -1
    return values * torch.randn(400, 1).sign()


def test_evaluate(adapted):
    scored = tllib_ancon.evaluate(adapted.model, PIXELS, labels=LABELS)
    predicted = tllib_ancon.predict(adapted.model, PIXELS).labels
    assert scored.accuracy == pytest.approx(100 * (predicted == LABELS).mean(), abs=1e-4)


def test_certify_two_models():
    source = network()
    other = network()
    with torch.no_grad():
        other.head.weight.neg_()
        other.head.bias.neg_()
    session = tllib_ancon.certify(source, other, PIXELS, labels=LABELS)
    assert session.certificate["labels"] > 0


@pytest.mark.parametrize("method", ["erm", "cdan", "mdd"])
def test_pretrain_then_adapt_then_evaluate(method, domains, tmp_path, capsys):
    steps = {} if method == "erm" else {"iters_per_epoch": 2}
    where = {"root": domains, "data": "ImageList"}
    log = tmp_path / "source"
    again = tmp_path / "adapted"
    length = {"epochs": 1, "batch_size": 8, **steps}
    settings = {**SMALL, **where, **length, "method": method, "source": ["bright"], "target": ["dark"], "log": log}
    tllib_ancon.pretrain(tllib_ancon.PretrainConfig(**settings))
    result = tllib_ancon.adapt(log, **where, target=["dark"], log=again, epochs=1)
    assert result.config.workers == 2
    for run, epoch in ((log, 0), (again, -1)):
        assert main(["evaluate", str(domains), "-d", "ImageList", "-t", "dark", "--checkpoint", str(run)]) == 0
        assert f"ECE (15 bins)        {result.metrics[epoch]['ece']:.4f}" in capsys.readouterr().out
