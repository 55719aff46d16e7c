"""A method gets the outputs of each image under the position that its steps have."""

import pytest
import torch

from tests.training.small import adapt, network
from tllib_ancon import methods
from tllib_ancon.data.loading import hold_out

IMAGES = 24
RECEIVED = []
VISITED = []


class Remembers(methods.Method):
    """A method without a loss that stores the pass and the batches it is called with."""

    refresh = "sample"

    def initialize(self, indices, features, logits):
        RECEIVED.append((indices.clone(), features.clone(), logits.clone()))

    def objective(self, visit, targets):
        VISITED.append(visit.indices)
        return visit.logits.sum() * 0


@pytest.fixture(params=["sample", "start"])
def method(request, monkeypatch):
    registered = dict(methods.REGISTERED)
    methods.register("remembers")(Remembers)
    monkeypatch.setattr(Remembers, "refresh", request.param)
    RECEIVED.clear()
    VISITED.clear()
    yield "remembers"
    methods.REGISTERED.clear()
    methods.REGISTERED.update(registered)


@pytest.mark.parametrize(
    "settings",
    [
        {"criterion": "last"},  # the pass that scores the source model
        {"criterion": "last", "labels": False},
        {"criterion": "infomax", "hold_out": 0.25},  # a pass of its own over images that are not held out
        {"criterion": "last", "batch_norm": 1.0},  # the pass that mixes statistics
    ],
)
def test_positions_are_those_of_a_step(method, settings):
    images = torch.randn(IMAGES, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    adapt(images=images, method=method, epochs=2, views=1, **settings)
    adapted = images[hold_out(IMAGES, settings.get("hold_out", 0.0), 0)[0]]
    ((indices, features, logits),) = RECEIVED
    source = network()
    torch.testing.assert_close(source(adapted[indices]), logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(source[:-1](adapted[indices]), features, rtol=1e-4, atol=1e-5)
    assert sorted(indices.tolist()) == list(range(len(adapted)))
    assert {*torch.cat(VISITED).tolist()} <= {*indices.tolist()}
