"""Every method passes the public checks, and its state depends on which samples a batch holds."""

import pytest
import torch
from torch import nn

from tests.self_training.neighborhoods import few_neighbors
from tllib_ancon import methods, testing
from tllib_ancon.runtime.processes import Shard
from tllib_ancon.testing import CLASSES, IN_ORDER, SAMPLES, WIDTH, losses

CHOICES = {
    **{name: (name, {}) for name in methods.names()},
    "schedule": ("ancon", {"schedule": "half"}),
    "paper": ("gce+ancon", {"convention": "paper", "normalize": True, "weighting": "entropy"}),
    "soft": ("shot+ancon", {"prediction": "soft", "temperature": 2.0}),
    "quantile": ("nrc+ancon-auto", {"weighting": "quantile", "quantile": 0.5}),
    "normalized": ("nrc+ancon", {"mixing": "normalized"}),
    "decaying": ("aad+ancon", {"aad_beta": 5.0}),
    "dropout": ("aad+ancon-auto", {"confidence": "mc-dropout", "dropout_probability": 0.0}),
    "beliefs": ("ancon", {"confidence": "belief-matching"}),
}
EVERY = pytest.mark.parametrize("choice", CHOICES)


def create(choice, **more):
    name, options = CHOICES[choice]
    return testing.create(name, **few_neighbors(name, 3, 2), **{**options, **more})


@EVERY
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda check: check.__name__)
def test_every_method_passes_every_check(choice, check):
    check(lambda: create(choice))


def test_a_method_that_reads_its_index_as_a_number_fails_a_check():
    class Wrong(methods.Method):
        def objective(self, visit, targets):
            return (visit.logits.sum(1) * visit.indices).sum()

    with pytest.raises(AssertionError):
        testing.check_storage_order(lambda: Wrong(num_samples=SAMPLES, num_classes=CLASSES))
    testing.check_method("ancon", smoothing=0.5)


@EVERY
def test_what_a_sample_is_told_depends_on_which_sample_it_is(choice):
    """The opposite check: an index that changes from visit to visit does matter to a method with a memory."""
    method = create(choice)
    generator = torch.Generator().manual_seed(2)
    memory = any(buffer.shape[:1] == (SAMPLES,) for buffer in method.buffers())
    visit = method.visit
    wrong = lambda indices: torch.randperm(SAMPLES, generator=generator)[: len(indices)]  # noqa: E731
    method.visit = lambda indices, *outputs: visit(wrong(indices), *outputs)
    pairs = zip(losses(method), losses(create(choice)), strict=True)
    assert all(torch.allclose(one, other) for one, other in pairs) != memory


def test_what_a_method_sees_of_a_batch():
    seen = {}

    class Seeing(methods.Method):
        def objective(self, visit, targets):
            seen.update(visit=visit, targets=targets)
            return visit.logits.sum()

        def regularizer(self, visit):
            return visit.features.mean()

    logits = torch.tensor([[0.0, 2.0], [3.0, 0.0]], requires_grad=True)
    features = torch.randn(2, 3)
    method = Seeing(num_samples=6, num_classes=2, shard=Shard(6, rank=1, world_size=2))
    loss = method(torch.tensor([5, 1]), logits, features)
    visit = seen["visit"]
    torch.testing.assert_close(loss, logits.sum() + features.mean())
    assert visit.indices.tolist() == [5, 1]
    assert visit.rows.tolist() == [2, 0]
    assert visit.labels.tolist() == [1, 0]
    assert torch.equal(seen["targets"], torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    torch.testing.assert_close(visit.probabilities, logits.softmax(1).detach())
    assert not visit.probabilities.requires_grad


def test_votes_are_weighed_by_the_distribution_that_dropout_gives():
    """The head is sure of class 0 where the first feature is large, whatever is dropped elsewhere."""
    logits = 3 * torch.randn(SAMPLES, CLASSES)
    features = torch.zeros(SAMPLES, WIDTH)
    features[:4, 0] = 9.0
    head = nn.Linear(WIDTH, CLASSES, bias=False)
    with torch.no_grad():
        head.weight.zero_()[0, 0] = 1.0
    method = create("ancon", confidence="mc-dropout", head=head, dropout_probability=0.2)
    assert method.state_dict().keys() == create("ancon").state_dict().keys()
    assert len([key for key in method.state_dict() if key.endswith("ensemble.counts")]) == 1
    method(IN_ORDER, logits.requires_grad_(), features.requires_grad_()).backward()
    assert head.weight.grad is None
    assert features.grad is None
    votes = method.ensemble.votes(IN_ORDER)
    has_votes = votes.sum(1) > 0
    assert has_votes.tolist() == [position < 4 for position in range(SAMPLES)]
    assert votes[:4].argmax(1).tolist() == logits[:4].argmax(1).tolist()
