"""How far two predictions of the same images agree."""

from torch import Tensor


def agreement_by_chance(labels: Tensor, other_labels: Tensor) -> float:
    r"""The share :math:`e = \sum_k p_k q_k` of images that have the same class in two independent predictions, with the
    frequencies p and q of their classes; both (N,) int64."""
    num_classes = 1 + int(max(labels.max(), other_labels.max()))
    numbers = labels.bincount(minlength=num_classes) @ other_labels.bincount(minlength=num_classes)
    return int(numbers) / len(labels) ** 2


def agreement_beyond_chance(labels: Tensor, other_labels: Tensor, by_chance: float) -> float:
    r"""How far two predictions of the same images agree: 1 if they are equal, 0 if no more than by chance.

    .. math:: \max\Big(0, \frac{a - e}{1 - e}\Big)

    with a the share of images that have the same class in both.

    Args:
        labels, other_labels: (N,) int64, in the same order
        by_chance: e in [0, 1]. With :func:`agreement_by_chance` it is Cohen's kappa, with 1 / K for K classes that of
            Brennan and Prediger, which does not fall where one class is frequent

    Source: Cohen, "A coefficient of agreement for nominal scales", 1960. Brennan and Prediger, "Coefficient kappa: some
    uses, misuses, and alternatives", 1981. Both in Educational and Psychological Measurement.
    """
    alike = float((labels == other_labels).double().mean())
    if alike == 1:
        return 1.0
    return max(0.0, (alike - by_chance) / (1 - by_chance))
