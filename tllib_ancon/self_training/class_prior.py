"""How often each class occurs in the target, estimated from predictions alone."""

from __future__ import annotations

import torch
from torch import Tensor

from tllib_ancon.errors import UserError
from tllib_ancon.self_training.checks import check_tensor, number, size


@torch.no_grad()
def estimate_class_prior(
    probabilities: Tensor,
    source_prior: Tensor | None = None,
    shrinkage: float = 0.5,
    steps: int = 200,
) -> Tensor:
    r"""The target's class prior by maximum likelihood, drawn towards equal classes.

    With p a classifier's predictions on N samples of the target and π the class prior that it was trained with, the
    expectation-maximisation of Saerens et al. goes from ρ = 1 / K by

    .. math::
        ρ_k ← \frac{1}{N} Σ_x \frac{ρ_k p_k(x) / π_k}{Σ_j ρ_j p_j(x) / π_j}

    towards the prior under which these predictions are likeliest; the result is :math:`(1 - s) ρ + s / K`. Under label
    shift alone and with calibrated predictions ρ is consistent; under other shifts it inherits the predictions' errors,
    hence the shrinkage s.

    Args:
        probabilities: (N, K) of any floating type, N at least 1
        source_prior: π, (K,), above 0 and of sum 1. Default: equal classes
        shrinkage (float): s in [0, 1]. Default: 0.5
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
    shrinkage, steps = number("shrinkage", shrinkage, at_least=0, at_most=1), size("steps", steps)
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
        return prior / prior.sum() * (1 - shrinkage) + equal * shrinkage


def _prior(given: Tensor, like: Tensor) -> Tensor:
    check_tensor("source_prior", given)
    prior = given.to(like)
    if prior.shape != like.shape or not (prior > 0).all() or abs(float(prior.sum()) - 1) > 1e-3:
        raise UserError(f"source_prior must be {len(like)} numbers above 0 with the sum 1")
    return prior
