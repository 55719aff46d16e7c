"""How far two predictions of the same images agree, beyond what chance explains."""

from torch import Tensor


def agreement_by_chance(labels: Tensor, other_labels: Tensor) -> float:
    r"""The share :math:`e = \sum_k p_k q_k` of images that have the same class in two independent predictions, with the
    frequencies p and q of their classes: (N,) int64 each."""
    num_classes = 1 + int(max(labels.max(), other_labels.max()))
    numbers = labels.bincount(minlength=num_classes) @ other_labels.bincount(minlength=num_classes)
    return int(numbers) / len(labels) ** 2


def agreement_beyond_chance(labels: Tensor, other_labels: Tensor) -> float:
    r"""Cohen's kappa of two predictions of the same images.

    .. math:: \kappa = \frac{a - e}{1 - e}

    with a the share of images that have the same class in both, and e that share :func:`by chance
    <agreement_by_chance>`. It is 1 if they are equal, 0 if they agree no more than by chance, or if one of them is one
    class.

    Args:
        labels, other_labels: (N,) int64, in the same order

    Source: Cohen, "A coefficient of agreement for nominal scales", Educational and Psychological Measurement 20, 1960.
    """
    by_chance = agreement_by_chance(labels, other_labels)
    if by_chance == 1:
        return 0.0
    share = float((labels == other_labels).double().mean())
    return (share - by_chance) / (1 - by_chance)
