"""CDAN and MDD of each toolkit are their papers' formulas, resume, and have classifiers of one form."""

import math

import pytest
import torch
from torch.nn.functional import binary_cross_entropy

K = 4
D = 6
B = 5
LABELS = torch.cat((torch.ones(B), torch.zeros(B)))
"""1 for the source's rows, which come first."""


def outputs(features_dim=D):
    """Logits and features of the source, then of the target."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(B, K), (B, features_dim)] * 2
    return [torch.randn(shape, generator=generator, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("margin", [1.0, 4.0])
def test_mdd_is_the_formula_with_the_sign_of_a_loss(toolkit, margin):
    """Zhang et al., ICML 2019, with TLLib's shift of the logarithm; what is minimised."""
    source, adversarial_source, target, adversarial_target = outputs(features_dim=K)
    on_source = adversarial_source.softmax(1).gather(1, source.argmax(1, keepdim=True))
    on_target = adversarial_target.softmax(1).gather(1, target.argmax(1, keepdim=True))
    shifted = (1 - on_target + 1e-6).clamp(max=1)
    expected = -margin * on_source.log().mean() - shifted.log().mean()
    loss = toolkit.mdd(margin)(source, adversarial_source, target, adversarial_target)
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize(("entropy_conditioning", "randomized"), [(False, False), (True, False), (False, True)])
def test_cdan_is_the_formula(toolkit, entropy_conditioning, randomized):
    """Long et al., NeurIPS 2018: the discriminator's loss on the products of features and predictions. The randomised
    map of dalib multiplies from the wrong side, and fails for every batch."""
    options = {"randomized": randomized, "randomized_dim": 16}
    loss = toolkit.cdan(K, D, entropy_conditioning=entropy_conditioning, **options)
    batch = outputs()
    value = loss(*batch)
    probabilities = torch.cat((batch[0], batch[2])).softmax(1).detach()
    features = torch.cat((batch[1], batch[3])).detach()
    if randomized:
        random_map = loss.loss.map
        rows = (features @ random_map.Rf) * (probabilities @ random_map.Rg) / math.sqrt(16)
    else:
        rows = (probabilities[:, :, None] * features[:, None]).flatten(1)
    weights = torch.ones(2 * B)
    if entropy_conditioning:
        entropy = -(probabilities * (probabilities + 1e-5).log()).sum(1)
        weights = 1 + (-entropy).exp()
        weights = weights / weights.mean()
    expected = binary_cross_entropy(loss.loss.domain_discriminator(rows).flatten(), LABELS, weights)
    torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5)


def test_a_resumed_randomised_loss_is_the_same_loss(toolkit):
    options = {"randomized": True, "randomized_dim": 16}
    first = toolkit.cdan(K, D, **options)
    second = toolkit.cdan(K, D, **options)
    assert first(*outputs()).item() != second(*outputs()).item()
    second.load_state_dict(first.state_dict())
    assert first.eval()(*outputs()).item() == second.eval()(*outputs()).item()
