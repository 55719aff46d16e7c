"""How often each class occurs in the target, estimated from predictions alone."""

from __future__ import annotations

import torch
from torch import Tensor

from tllib_ancon.errors import UserError
from tllib_ancon.self_training.checks import check_tensor, number, size


@torch.no_grad()
def estimate_class_prior(
    probabilities: Tensor, source_prior: Tensor | None = None, shrinkage: float | None = None
) -> Tensor:
    r"""The target's class prior: how often each class is predicted, drawn towards equal classes.

    With :math:`h_k` the share of the N samples whose most probable class is k, ρ of :func:`likeliest_class_prior`, and
    :math:`d(a, b) = \frac{1}{2} Σ_k |a_k - b_k|`,

    .. math::
        (1 - s) h + s / K,   s = \min(1, d(h, ρ) / d(h, 1 / K))

    Under label shift alone, and with accurate and calibrated predictions, h and ρ agree. Where other shifts have spoilt
    the predictions they differ: s is how unreliable the counts are, in units of how far they are from equal classes.
    On Office-31 and digits such counts are closer to the true shares than ρ is
    (``benchmarks/results/class_prior.md``).

    Args:
        probabilities: (N, K) of any floating type, N at least 1
        source_prior: π, (K,), above 0 and of sum 1. Default: equal classes
        shrinkage (float, optional): s in [0, 1] in place of the one above

    Returns: (K,) float32 of sum 1 on the predictions' device

    Raises:
        UserError: other shapes, predictions that are not finite, a prior that is none, a parameter out of range
    """
    likeliest = likeliest_class_prior(probabilities, source_prior)
    num_samples, num_classes = probabilities.shape
    counts = torch.bincount(probabilities.argmax(1), minlength=num_classes) / num_samples
    if shrinkage is None:
        unequal = (counts - 1 / num_classes).abs().sum()
        share = ((counts - likeliest).abs().sum() / unequal).clamp(max=1) if unequal > 0 else unequal.new_ones(())
    else:
        share = torch.as_tensor(number("shrinkage", shrinkage, at_least=0, at_most=1), device=counts.device)
    return counts * (1 - share) + share / num_classes


@torch.no_grad()
def likeliest_class_prior(probabilities: Tensor, source_prior: Tensor | None = None, steps: int = 200) -> Tensor:
    r"""The target's class prior by maximum likelihood.

    With p a classifier's predictions on N samples of the target and π the class prior that it was trained with, the
    expectation-maximisation of Saerens et al. goes from ρ = 1 / K by

    .. math::
        ρ_k ← \frac{1}{N} Σ_x \frac{ρ_k p_k(x) / π_k}{Σ_j ρ_j p_j(x) / π_j}

    towards the prior under which these predictions are likeliest. Under label shift alone and with calibrated
    predictions ρ is consistent; under other shifts it inherits the predictions' errors, and enlarges them.

    Args:
        probabilities: (N, K) of any floating type, N at least 1
        source_prior: π, (K,), above 0 and of sum 1. Default: equal classes
        steps (int): most steps; fewer where ρ changes by less than 1e-6 in sum. Default: 200

    Returns: (K,) float32 of sum 1 on the predictions' device

    Raises:
        UserError: other shapes, predictions that are not finite, a prior that is none, a parameter out of range

    Source: Saerens, Latinne & Decaestecker, "Adjusting the Outputs of a Classifier to New a Priori Probabilities: A
    Simple Procedure", Neural Computation 2002, Eq. 9.
    """
    check_tensor("probabilities", probabilities)
    if probabilities.ndim != 2 or not probabilities.numel():
        raise UserError(f"probabilities have shape {tuple(probabilities.shape)}; expected (N, K) with N at least 1")
    if not probabilities.isfinite().all() or (probabilities < 0).any() or not probabilities.sum(1).all():
        raise UserError("probabilities must be finite and at least 0, with a positive sum in each row")
    steps = size("steps", steps)
    num_samples, num_classes = probabilities.shape
    equal = torch.full((num_classes,), 1 / num_classes, device=probabilities.device)
    with torch.autocast(probabilities.device.type, enabled=False):
        likelihoods = probabilities.float() / (equal if source_prior is None else _prior(source_prior, equal))
        prior = equal
        for _ in range(steps):
            evidence = (likelihoods @ prior).clamp(min=torch.finfo(torch.float32).tiny)
            updated = prior * (likelihoods.T @ evidence.reciprocal()) / num_samples
            change = float((updated - prior).abs().sum())
            prior = updated
            if change < 1e-6:
                break
        return prior / prior.sum()


def _prior(given: Tensor, like: Tensor) -> Tensor:
    check_tensor("source_prior", given)
    prior = given.to(like)
    if prior.shape != like.shape or not (prior > 0).all() or abs(float(prior.sum()) - 1) > 1e-3:
        raise UserError(f"source_prior must be {len(like)} numbers above 0 with the sum 1")
    return prior
