"""A copy of a model has compiled forwards, hooks and functions of its own: what it learns counts."""

from functools import partial

import pytest
import torch

from tests.first_contact.test_every_model import NETWORKS, PREPROCESSING, adapted
from tests.networks import PIXELS, Net, normalised
from tests.support.refusals import one_line
from tllib_ancon import online, predict


def recorded_backend():
    """A list that grows with each compilation, and a backend of ``torch.compile`` that only records."""
    calls = []

    def backend(graph, inputs):
        calls.append(len(inputs))
        return graph.forward

    torch._dynamo.reset()
    return calls, backend


@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_model_keeps_its_backend(in_place):
    calls, backend = recorded_backend()
    model = Net()
    if in_place:
        model.compile(backend=backend)
    else:
        model = torch.compile(model, backend=backend)
    result = adapted(NETWORKS["plain"], model, method="adabn").model
    assert not calls
    result(normalised()[:2])
    assert calls


@pytest.mark.parametrize("method", ["self-training", "adabn"])
def test_a_compiled_forward_is_copied_and_compiled_again(method):
    calls, backend = recorded_backend()
    model = Net()
    model.forward = torch.compile(model.forward, backend=backend)
    result = adapted(NETWORKS["plain"], model, method=method).model
    plain = adapted(NETWORKS["plain"], Net(), method=method).model
    assert all(map(torch.equal, result.state_dict().values(), plain.state_dict().values()))
    assert not calls
    result(normalised()[:2])
    assert calls


@pytest.mark.parametrize("method", ["self-training", "adabn"])
def test_a_forward_that_calls_the_original_gets_a_line(method):
    model = Net()
    parts = [model.body, model.head]
    model.forward = lambda images: parts[1](parts[0](images))
    line = "calls Sequential of this very object.*write it as a method in the class of the model"
    with one_line(line):
        adapted(NETWORKS["plain"], model, method=method)
    with one_line(line):
        online(model, method="tent")(normalised())
    assert model.body[0]._forward_pre_hooks == {}


class Hooked(Net):
    """Its features come from a hook, which is a function that stores them in this object or in a dict of it."""

    def __init__(self, stores_in_dict):
        super().__init__()
        features = {}
        self.features = features
        if stores_in_dict:
            self.body.register_forward_hook(lambda module, inputs, output: features.update(body=output))
        else:
            self.body.register_forward_hook(lambda module, inputs, output: self.features.update(body=output))

    def forward(self, images):
        self.body(images)
        return self.head(self.features["body"])


def forward_of_the_object():
    model = Net()
    class_forward = model.forward
    model.forward = lambda images: class_forward(images)
    return model


@pytest.mark.parametrize("build", [partial(Hooked, True), partial(Hooked, False), forward_of_the_object])
def test_functions_that_hold_the_model_are_copied_with_it(build):
    model = build()
    predict(model, PIXELS, **PREPROCESSING, workers=0)
    for method in ("self-training", "adabn"):
        result = adapted(NETWORKS["plain"], model, method=method).model
        plain = adapted(NETWORKS["plain"], Net(), method=method).model
        for tensor, expected in zip(result.state_dict().values(), plain.state_dict().values(), strict=True):
            torch.testing.assert_close(tensor, expected)
        torch.testing.assert_close(result(normalised()), plain(normalised()))
