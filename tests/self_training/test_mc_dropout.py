from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from tllib_ancon.errors import UserError
from tllib_ancon.self_training.mc_dropout import mc_dropout_probabilities


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_mean_over_all_masks_in_the_limit() -> None:
    features, head = torch.randn(4, 3, generator=generator(1)), nn.Linear(3, 5)
    p = 0.2
    expected = torch.zeros(4, 5)
    for mask in itertools.product([0.0, 1.0], repeat=3):
        chance = (1 - p) ** sum(mask) * p ** (3 - sum(mask))
        expected += chance * head(features * torch.tensor(mask) / (1 - p)).softmax(1).detach()
    found = mc_dropout_probabilities(features, head, passes=5000, p=p, generator=generator())
    torch.testing.assert_close(found, expected, rtol=0, atol=0.02)


def test_the_mean_over_few_passes() -> None:
    features, head = torch.randn(4, 3), nn.Linear(3, 5)
    masks = generator(7)
    expected = torch.zeros(4, 5)
    for _ in range(3):
        mask = torch.empty(4, 3).bernoulli_(0.5, generator=masks)
        expected += head(features * mask * 2).softmax(1).detach() / 3
    found = mc_dropout_probabilities(features, head, passes=3, generator=generator(7))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found.sum(1), torch.ones(4))


def test_no_dropout_is_the_softmax() -> None:
    features, head = torch.randn(4, 3), nn.Linear(3, 5)
    found = mc_dropout_probabilities(features, head, passes=2, p=0.0)
    torch.testing.assert_close(found, head(features).softmax(1).detach())


def test_a_generator_leaves_the_global_one_alone() -> None:
    features, head = torch.randn(4, 3), nn.Linear(3, 5)
    before = torch.get_rng_state()
    mc_dropout_probabilities(features, head, generator=generator())
    assert torch.equal(torch.get_rng_state(), before)
    mc_dropout_probabilities(features, head)
    assert not torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_float32_without_gradient(dtype: torch.dtype) -> None:
    features, head = torch.randn(4, 3, requires_grad=True).to(dtype), nn.Linear(3, 5).to(dtype)
    found = mc_dropout_probabilities(features, head, passes=4, generator=generator())
    assert found.dtype == torch.float32
    assert not found.requires_grad
    wide = mc_dropout_probabilities(features.float(), head.float(), passes=4, generator=generator())
    torch.testing.assert_close(found, wide, rtol=0, atol=0.02)


@pytest.mark.parametrize(
    ("features", "options", "message"),
    [
        (torch.zeros(2, 3), {"passes": 0}, "`passes` must be at least 1"),
        (torch.zeros(2, 3), {"p": 1.0}, "`p` must be .* below 1"),
        (torch.zeros(2, 3), {"p": -0.1}, "`p` must be at least 0"),
        (torch.zeros(2, 3, 1, 1), {}, "features have shape"),
    ],
)
def test_bad_input(features, options, message) -> None:
    with pytest.raises(UserError, match=message):
        mc_dropout_probabilities(features, nn.Linear(3, 5), **options)
