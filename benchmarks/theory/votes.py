"""Theorem 3.1 as code: when a majority of confident votes is right. Theorem 3.2 is in ``linear_model.py``."""

from __future__ import annotations

import torch
from torch import Tensor

from tllib_ancon.errors import UserError


def xi(mean_accuracy: Tensor | float) -> Tensor:
    r"""The rate :math:`\xi(z) = 2z - 1 - \log(2z)` of Theorem 3.1.

    It increases on :math:`[1/2, 1]` from :math:`\xi(1/2) = 0`, and is what the paper's Chernoff bound gives,
    :math:`-2(q - z - q \log(q/z))` at :math:`q = 1/2`.

    Inputs:
        - mean_accuracy: z, a number or a tensor of any shape in [1/2, 1].

    Shape: float64 of the input's shape.

    Raises:
        UserError: outside [1/2, 1].
    """
    z = torch.as_tensor(mean_accuracy, dtype=torch.float64)
    if not ((z >= 0.5) & (z <= 1)).all():
        raise UserError(f"ξ is defined for a mean accuracy in [0.5, 1], got {_extremes(z)}")
    return 2 * z - 1 - (2 * z).log()


def ensemble_error_bound(num_votes: Tensor | int, mean_accuracy: Tensor | float) -> Tensor:
    r"""Theorem 3.1: :math:`p(\arg\max_k \bar f_k(x) \ne Y(x)) \le \exp(-Q \, \xi(\bar p) / 2)`.

    It assumes independent votes. Hoeffding's inequality, :math:`\exp(-Q (2 \bar p - 1)^2 / 2)`, assumes the
    same and is stronger at every :math:`\bar p`, since :math:`u - \log(1 + u) \le u^2 / 2`.

    Inputs:
        - num_votes: Q(x), the number of confident votes of a sample.
        - mean_accuracy: :math:`\bar p(x)`, their mean accuracy, in (1/2, 1].

    Outputs: an upper bound of the error rate in (0, 1].

    Shape: inputs broadcast; the output is float64.

    Raises:
        UserError: for a mean accuracy outside (1/2, 1] (the theorem is silent there) or negative votes.
    """
    votes, mean_accuracy = torch.as_tensor(num_votes), torch.as_tensor(mean_accuracy, dtype=torch.float64)
    if (votes < 0).any():
        raise UserError(f"the number of votes is negative: {_extremes(votes)}")
    if not (mean_accuracy > 0.5).all():
        raise UserError(f"Theorem 3.1 needs a mean accuracy above 0.5, got {_extremes(mean_accuracy)}")
    return (-votes / 2 * xi(mean_accuracy)).exp()


def majority_error(accuracies: Tensor) -> float:
    r"""Exact :math:`p(S \le Q/2)`: no strict majority of Q independent votes is right; ties count as errors.

    S has the Poisson-binomial distribution. This is the error of the plurality vote with two classes, or with
    more of them when all wrong votes agree, and an upper bound of it otherwise.

    Inputs:
        - accuracies: how likely each vote is right.

    Outputs: a float in [0, 1].

    Shape: (Q,) in [0, 1], Q ≥ 1.

    Raises:
        UserError: for another shape or accuracies outside [0, 1].
    """
    accuracies = _checked_accuracies(accuracies)
    num_right = torch.ones(1, dtype=torch.float64)
    for p in accuracies:
        stay, rise = num_right * (1 - p), num_right * p
        num_right = torch.cat((stay, stay.new_zeros(1))) + torch.cat((rise.new_zeros(1), rise))
    return float(num_right[: len(accuracies) // 2 + 1].sum())


def simulate_ensemble_error(
    accuracies: Tensor, num_classes: int, trials: int, generator: torch.Generator, wrong: str = "uniform"
) -> float:
    """Monte-Carlo error of the plurality vote of independent, differently accurate votes.

    Args:
        num_classes (int): K ≥ 2.
        trials (int): independent repetitions.
        generator (torch.Generator): of the votes.
        wrong (str): where wrong votes go: ``uniform`` over the other classes, or ``adversarial``, all to one.

    Inputs:
        - accuracies: how likely each vote is right.

    Outputs: the share of trials in which the true class has no more votes than another; a float in [0, 1].

    Shape: (Q,) in [0, 1], Q ≥ 1.

    Raises:
        UserError: for another shape, accuracies outside [0, 1], K < 2, no trial, or another ``wrong``.
    """
    accuracies = _checked_accuracies(accuracies)
    if num_classes < 2 or trials < 1:
        raise UserError(f"a vote needs two classes and one trial, got {num_classes} and {trials}")
    if wrong not in ("uniform", "adversarial"):
        raise UserError(f"wrong={wrong!r}: expected 'uniform' or 'adversarial'")
    shape = (trials, len(accuracies))
    right = torch.rand(shape, generator=generator, dtype=torch.float64) < accuracies
    num_wrong_classes = num_classes if wrong == "uniform" else 2
    others = torch.randint(1, num_wrong_classes, shape, generator=generator)
    votes = torch.zeros(trials, num_classes, dtype=torch.int64)
    votes.scatter_add_(1, others.masked_fill(right, 0), torch.ones(shape, dtype=torch.int64))
    return float((votes[:, 0] <= votes[:, 1:].amax(dim=1)).double().mean())


def marginal_total_variation(first: Tensor, second: Tensor, num_classes: int) -> float:
    r"""Total variation :math:`\frac12 \sum_k |p_k - q_k|` between two marginals of pseudo-labels.

    The appendix plots it for consecutive epochs; the paper's reading of Theorem 3.2 needs it to be small.

    Args:
        num_classes (int): K.

    Inputs:
        - first, second: pseudo-labels, e.g. of all samples at two consecutive epochs.

    Outputs: a float in [0, 1].

    Shape: (N,) and (M,) integers in [0, K), N and M ≥ 1.

    Raises:
        UserError: for another shape, no pseudo-label, or one out of range.
    """
    marginals = [_marginal(pseudo_labels, num_classes) for pseudo_labels in (first, second)]
    return float((marginals[0] - marginals[1]).abs().sum() / 2)


def _marginal(pseudo_labels: Tensor, num_classes: int) -> Tensor:
    if pseudo_labels.ndim != 1 or len(pseudo_labels) == 0 or pseudo_labels.is_floating_point():
        raise UserError(f"pseudo-labels {tuple(pseudo_labels.shape)}, {pseudo_labels.dtype}: expected (N,) integers")
    if pseudo_labels.min() < 0 or pseudo_labels.max() >= num_classes:
        raise UserError(f"pseudo-labels lie outside 0 to {num_classes - 1}: {_extremes(pseudo_labels)}")
    return pseudo_labels.bincount(minlength=num_classes).double() / len(pseudo_labels)


def _checked_accuracies(accuracies: Tensor) -> Tensor:
    if accuracies.ndim != 1 or len(accuracies) == 0:
        raise UserError(f"accuracies have shape {tuple(accuracies.shape)}; expected (Q,), one per vote")
    accuracies = accuracies.double()
    if not ((accuracies >= 0) & (accuracies <= 1)).all():
        raise UserError(f"accuracies lie outside [0, 1]: {_extremes(accuracies)}")
    return accuracies


def _extremes(values: Tensor) -> str:
    return f"{float(values.min()):g} to {float(values.max()):g}"
