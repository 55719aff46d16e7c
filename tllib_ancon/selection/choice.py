"""Which model to take: the criteria by name, what each of them needs, and the choice among epochs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tllib_ancon.errors import UserError, unknown_name
from tllib_ancon.selection.criteria import (
    checked_probabilities,
    corr_c,
    infomax,
    mano,
    marginal_entropy,
    mean_entropy,
    nuclear_norm,
    snd,
)
from tllib_ancon.selection.pool import aetta, asr_resets, dropout_agreement, ensv, mixval

PAPER_CRITERIA = ("infomax", "corr_c", "mean_entropy")
"""InfoMax, Corr-C and Ent, the last as its source defines it."""

LAST, NONE = "last", "none"
"""Choices that score nothing: the last epoch, and the last epoch of a run that adapts on all images."""

NEEDS = {
    "nothing": "the order of the epochs",
    "probabilities": "the probabilities of one epoch",
    "logits": "the logits of one epoch",
    "pool": "the probabilities of all epochs",
    "sequence": "the logits of all epochs in their order, the start first",
    "dropout": "the probabilities of one epoch, and of passes with dropout",
    "mixed": "the predictions of one epoch, and those on mixed images",
}
"""What a criterion is computed from."""


@dataclass(frozen=True)
class Mixtures:
    """The predictions of a model on mixtures of two images; see :func:`mixval`.

    Attributes:
        logits: (M, K)
        first, second: (M,) positions of the images, of which the first weighs more
    """

    logits: Tensor
    first: Tensor
    second: Tensor


@dataclass(frozen=True)
class Outputs:
    """The outputs of one model, such as that of an epoch, on N images: all that a criterion may need.

    Attributes:
        logits: (N, K)
        dropout: (T, N, K) probabilities of passes with dropout
        mixtures: of two images each
    """

    logits: Tensor
    dropout: Tensor | None = None
    mixtures: Mixtures | None = None

    @property
    def probabilities(self) -> Tensor:
        return self.logits.float().softmax(dim=1)


@dataclass(frozen=True)
class Criterion:
    """A label-free criterion that scores one epoch by its probabilities, with and perhaps without dropout.

    Attributes:
        name: short
        function: probabilities (N, K) -> score; where it needs dropout, those (N, K) and (T, N, K) -> score
        higher_is_better: which end is better
        source: where it comes from
        fewest_samples: N at least
        needs: of :data:`NEEDS`
    """

    name: str
    function: Callable[..., float]
    higher_is_better: bool
    source: str
    fewest_samples: int = 1
    needs: str = "probabilities"

    def score(self, probabilities: Tensor, dropout: Tensor | None = None) -> float:
        """NaN where it needs dropout and there is none."""
        if self.needs == "probabilities":
            return self.function(probabilities)
        return math.nan if dropout is None else self.function(probabilities, dropout)

    def scores(self, pool: Sequence[Outputs]) -> list[float]:
        """A score for each model."""
        return [self.score(outputs.probabilities, outputs.dropout) for outputs in pool]


@dataclass(frozen=True)
class PoolCriterion:
    """A label-free criterion that needs more than the probabilities of one epoch.

    Attributes:
        name: short
        function: what models say, in their order, the start first -> a score for each of them; NaN where a model lacks
            what is needed
        higher_is_better: which end is better
        source: where it comes from
        needs: of :data:`NEEDS`
    """

    name: str
    function: Callable[[Sequence[Outputs]], list[float]]
    higher_is_better: bool
    source: str
    needs: str

    def scores(self, pool: Sequence[Outputs]) -> list[float]:
        """A score for each model."""
        return self.function(pool)


CRITERIA: dict[str, Criterion] = {
    criterion.name: criterion
    for criterion in (
        Criterion("infomax", infomax, True, "Shi and Sha, 2012"),
        Criterion("corr_c", corr_c, False, "Tu et al., 2022"),
        Criterion("mean_entropy", mean_entropy, False, "Morerio et al., 2017"),
        Criterion("marginal_entropy", marginal_entropy, False, "Ent as the paper prints it"),
        Criterion("snd", snd, True, "Saito et al., 2021", fewest_samples=2),
        Criterion("nuclear_norm", nuclear_norm, True, "Deng et al., 2023"),
        Criterion("aetta", aetta, True, "Lee et al., 2024", needs="dropout"),
    )
}
"""Criteria that an adaptation computes after each epoch."""


def _ensv(pool: Sequence[Outputs]) -> list[float]:
    return ensv([outputs.probabilities for outputs in pool])


def _until_reset(pool: Sequence[Outputs]) -> list[float]:
    """The later the better, up to the epoch before the first that ASR would reset."""
    resets = asr_resets([outputs.logits for outputs in pool])
    first = next((epoch for epoch in range(1, len(pool)) if resets[epoch]), len(pool))
    return [float(epoch) if epoch < first else -1.0 for epoch in range(len(pool))]


def _dropout_agreement(pool: Sequence[Outputs]) -> list[float]:
    return [
        math.nan if outputs.dropout is None else dropout_agreement(outputs.probabilities, outputs.dropout)
        for outputs in pool
    ]


def _mixval(pool: Sequence[Outputs]) -> list[float]:
    return [
        math.nan
        if (mixtures := outputs.mixtures) is None
        else mixval(mixtures.logits, outputs.logits.argmax(dim=1), mixtures.first, mixtures.second)
        for outputs in pool
    ]


def _in_order(pool: Sequence[Outputs]) -> list[float]:
    return [float(epoch) for epoch in range(len(pool))]


POOL_CRITERIA: dict[str, PoolCriterion] = {
    criterion.name: criterion
    for criterion in (
        PoolCriterion("mano", lambda pool: [mano(one.logits) for one in pool], True, "Xie et al., 2024", "logits"),
        PoolCriterion("ensv", _ensv, True, "Hu et al., 2024", "pool"),
        PoolCriterion("asr", _until_reset, True, "Lim et al., 2026", "sequence"),
        PoolCriterion("dropout_agreement", _dropout_agreement, True, "Lee et al., 2024", "dropout"),
        PoolCriterion("mixval", _mixval, True, "Hu et al., 2023", "mixed"),
        PoolCriterion(LAST, _in_order, True, "no criterion: the last epoch", "nothing"),
    )
}
"""Criteria that choose among models whose outputs were stored."""

CHOICES = (*CRITERIA, LAST, NONE)
"""Names by which an adaptation chooses its epoch."""


def score_all(
    probabilities: Tensor, criteria: Iterable[str] | None = None, dropout: Tensor | None = None
) -> dict[str, float]:
    """Scores one evaluation pass by every criterion.

    Args:
        criteria: names in :data:`CRITERIA`; by default all that N samples are enough for and that need no more than
            is given. ``snd`` alone needs time quadratic in N.

    Inputs:
        - probabilities: one probability vector per sample.
        - dropout: those of T passes with dropout, if there are any; without them ``aetta`` is NaN.

    Outputs: the score by name, in the order of ``criteria``.

    Shape: (N, K) and (T, N, K), any float dtype; computed in float64.

    Raises:
        UserError: see :func:`infomax`; also for an unknown name.
    """
    probabilities = checked_probabilities(probabilities)
    if criteria is None:
        given = ("probabilities",) if dropout is None else ("probabilities", "dropout")
        enough = [one for one in CRITERIA.values() if len(probabilities) >= one.fewest_samples]
        criteria = [one.name for one in enough if one.needs in given]
    return {name: find_criterion(name).score(probabilities, dropout) for name in criteria}


def best_epoch(scores: Sequence[float], criterion: str) -> int:
    """The first index at which ``criterion`` is best. NaN never wins.

    Args:
        scores: one score per epoch; index 0 is the start model where epoch 0 was scored.
        criterion (str): a name in :data:`CRITERIA`; it says which end is better.

    Outputs: an index into ``scores``.

    Raises:
        UserError: for an unknown name, and if no score is a number.
    """
    sign = 1 if find_criterion(criterion).higher_is_better else -1
    candidates = [epoch for epoch, score in enumerate(scores) if not math.isnan(score)]
    if not candidates:
        raise UserError(f"none of the {len(scores)} epochs has a {criterion} score; evaluate at least one")
    return max(candidates, key=lambda epoch: sign * scores[epoch])


def selection_spread(accuracies_by_criterion: Mapping[str, float]) -> float:
    """The paper's "maximum performance change under different selection methods" (Section 4.3.1): max - min.

    Args:
        accuracies_by_criterion: the accuracy of the epoch that each criterion selected, all in one unit.

    Outputs: a non-negative float in that unit.

    Raises:
        UserError: if there is no accuracy, or one is NaN.
    """
    accuracies = list(accuracies_by_criterion.values())
    if not accuracies or any(math.isnan(accuracy) for accuracy in accuracies):
        raise UserError(f"the spread needs one accuracy per criterion, got {dict(accuracies_by_criterion)}")
    return max(accuracies) - min(accuracies)


def holds_out(choice: str) -> bool:
    """Whether an adaptation that chooses its epoch in this way needs images that it does not adapt on.

    Raises:
        UserError: for a name that is not in :data:`CHOICES`.
    """
    _require_choice(choice)
    return choice != NONE


def needs_dropout(choice: str) -> bool:
    """Whether an adaptation that chooses its epoch in this way drops features before the head.

    Raises:
        UserError: for a name that is not in :data:`CHOICES`.
    """
    _require_choice(choice)
    return choice in CRITERIA and CRITERIA[choice].needs == "dropout"


def fewest_samples(choice: str) -> int:
    """The smallest number of images on which an adaptation that chooses its epoch in this way can be scored.

    Raises:
        UserError: for a name that is not in :data:`CHOICES`.
    """
    _require_choice(choice)
    return CRITERIA[choice].fewest_samples if choice in CRITERIA else 1


def chosen(metrics: Sequence[Mapping[str, Any]], choice: str) -> int:
    """The epoch, among these, that an adaptation takes.

    Args:
        metrics: of the epochs in their order; each has a score by the name of the criterion.
        choice (str): a name in :data:`CHOICES`.

    Outputs: an index into ``metrics``.

    Raises:
        UserError: for an unknown name, no epoch at all, and if no score is a number.
    """
    _require_choice(choice)
    if choice in CRITERIA:
        return best_epoch([line.get(choice, math.nan) for line in metrics], choice)
    if not metrics:
        raise UserError("there is no epoch to choose; adapt for at least one")
    return len(metrics) - 1


def _require_choice(choice: str) -> None:
    if choice not in CHOICES:
        raise unknown_name("criterion", choice, CHOICES)


def find_criterion(name: str) -> Criterion:
    """The criterion of that name, or :class:`UserError` with the valid names."""
    if name not in CRITERIA:
        raise unknown_name("criterion", name, CRITERIA)
    return CRITERIA[name]
