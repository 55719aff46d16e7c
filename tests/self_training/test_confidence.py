from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.self_training.neighborhoods import few_neighbors
from tllib_ancon import methods
from tllib_ancon.errors import UserError
from tllib_ancon.self_training.belief_matching import belief_matching_loss

SAMPLES, CLASSES, WIDTH = 12, 3, 5


def visit(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(SAMPLES, WIDTH, generator=generator)
    return torch.arange(SAMPLES), 3 * torch.randn(SAMPLES, CLASSES, generator=generator), features


def create(name: str, **options: object) -> methods.Method:
    return methods.create(name, num_samples=SAMPLES, num_classes=CLASSES, feature_dim=WIDTH, **options)


class OneSided(nn.Module):
    """A head that is sure of class 0 where the first feature is large, whatever is dropped elsewhere."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return torch.stack([features[:, 0], -features[:, 0], torch.zeros(len(features))], dim=1)


def test_votes_are_weighed_by_the_distribution_that_dropout_gives() -> None:
    indices, logits, features = visit()
    features[:, 0] = torch.where(indices < 4, 9.0, 0.0)
    method = create("ancon", confidence="mc-dropout", head=OneSided(), dropout_probability=0.2)
    method(indices, logits, features)
    voted = method.ensemble.votes(indices).sum(1) > 0
    assert voted.tolist() == [True] * 4 + [False] * 8
    assert method.ensemble.votes(indices[:4]).argmax(1).tolist() == logits[:4].argmax(1).tolist()


def test_no_dropout_is_the_softmax_of_the_head() -> None:
    head = nn.Linear(WIDTH, CLASSES)
    _, logits, features = visit()
    method = create("ancon", confidence="mc-dropout", head=head, dropout_passes=3, dropout_probability=0.0)
    torch.testing.assert_close(method.confidence(logits, features), head(features).softmax(1))


def test_the_head_is_no_state_of_the_method_and_gets_no_gradient() -> None:
    head = nn.Linear(WIDTH, CLASSES)
    indices, logits, features = visit()
    plain, method = create("ancon"), create("ancon", confidence="mc-dropout", head=head)
    method(indices, logits.requires_grad_(), features.requires_grad_()).backward()
    assert method.state_dict().keys() == plain.state_dict().keys()
    assert head.weight.grad is None
    assert features.grad is None


@pytest.mark.parametrize("name", ["self-training", "ancon"])
def test_belief_matching_replaces_the_cross_entropy(name: str) -> None:
    indices, logits, features = visit()
    options = {"smoothing": 0.0} if name == "ancon" else {}
    loss = create(name, confidence="belief-matching", belief_coefficient=0.5, **options)(indices, logits, features)
    torch.testing.assert_close(loss, belief_matching_loss(logits, logits.argmax(1), 0.5))


@pytest.mark.parametrize("name", [name for name in methods.names() if "ancon" in name])
def test_every_anchored_method_takes_a_predictive_distribution(name: str) -> None:
    indices, logits, features = visit()
    few = few_neighbors(name, 2, 2)
    method = create(name, confidence="mc-dropout", head=OneSided(), total_steps=4, **few)
    if method.needs_pass(0):
        method.initialize(0, indices, features, logits)
    assert method(indices, logits, features).isfinite()


def test_what_is_refused() -> None:
    with pytest.raises(UserError, match="`head` is needed"):
        create("ancon", confidence="mc-dropout")
    with pytest.raises(UserError, match="this method has its own"):
        create("gce+ancon", confidence="belief-matching")
    with pytest.raises(UserError, match="did you mean 'mc-dropout'"):
        create("ancon", confidence="mcdropout", head=OneSided())
    with pytest.raises(UserError, match="dropout_probability"):
        create("ancon", confidence="mc-dropout", head=OneSided(), dropout_probability=1.5)
