"""One adaptation step, composed of parts that each read a visit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from tllib_ancon.self_training.ensemble import TemporalEnsemble
from tllib_ancon.self_training.processes import Shard
from tllib_ancon.self_training.pseudo_label import one_hot


@dataclass(frozen=True)
class Visit:
    """One batch, as each part of a method sees it.

    Attributes:
        indices: (B,) int64, positions in the whole target set
        rows: (B,) int64, positions among the samples that this process visits; of one process the same
        logits: (B, K) of any floating type, with gradient
        features: (B, D) of any floating type, with gradient: what the head receives
        labels: (B,) int64, pseudo-labels: the class of the largest logit, or those of the method's labeler
        probabilities: (B, K) float32 without gradient, the predictive distribution: the softmax, or that of the
            method's confidence
    """

    indices: Tensor
    rows: Tensor
    logits: Tensor
    features: Tensor
    labels: Tensor
    probabilities: Tensor

    @property
    def num_classes(self) -> int:
        """K"""
        return self.logits.shape[1]


@dataclass(frozen=True)
class Task:
    """What a method is built for: the sizes of the target set and the model's head.

    Attributes:
        num_samples: N, images of the whole target set
        num_classes: K
        feature_dim: D, width of the features before the head
        total_steps: I, steps of the whole training
        head: (B, D) -> (B, K) logits, the model's head
        shard: of many processes, the samples that this one visits; None: all
    """

    num_samples: int
    num_classes: int
    feature_dim: int | None = None
    total_steps: int | None = None
    head: Callable[[Tensor], Tensor] | None = None
    shard: Shard | None = None

    @property
    def num_own_samples(self) -> int:
        """Images that this process visits: what the state of a refiner or a regulariser is for."""
        return self.num_samples if self.shard is None else len(self.shard)


class Refiner(Protocol):
    def __call__(self, visit: Visit, /) -> Tensor | None: ...


class Objective(Protocol):
    def __call__(self, visit: Visit, targets: Any, /) -> Tensor: ...


class Regularizer(Protocol):
    def __call__(self, visit: Visit, /) -> Tensor: ...


def one_hot_targets(visit: Visit) -> Tensor:
    """The refiner of plain self-training, E_1(ŷ) (Lee, 2013): (B, K) float32."""
    return one_hot(visit.labels, visit.num_classes)


def no_targets(visit: Visit) -> None:
    """The refiner of objectives that use no pseudo-label."""


class Part(nn.Module):
    """A module with a signature of its own, as a function of the visit: ``module(*arguments(visit, …))``.

    Args:
        module: whose state this part keeps
        arguments: the visit, and for an objective the targets -> what the module takes
    """

    def __init__(self, module: nn.Module, arguments: Callable[..., tuple[Any, ...]]):
        super().__init__()
        self.module = module
        self.arguments = arguments

    def forward(self, visit: Visit, *targets: Tensor | None) -> Any:
        return self.module(*self.arguments(visit, *targets))


class Method(nn.Module):
    """One adaptation step as a composition of parts.

    .. math::
        L = objective(visit, refiner(visit)) + regularizer(visit)

    Each part is a function or, if it has a state, an ``nn.Module`` (:class:`Part` makes one of a module with another
    signature).

    Args:
        objective: ``(visit, targets) -> scalar``
        refiner: ``visit -> targets (B, K)``. Default: one-hot pseudo-labels
        regularizer: ``visit -> scalar`` that is added to the objective
        labeler: ``indices (B,) -> labels (B,)``, in place of the class of the largest logit
        confidence: ``(logits, features) -> probabilities (B, K)``, in place of the softmax
        ensemble: that of the refiner, if it keeps one
        shard: of many processes, the samples that this one visits. Default: all
        trains: False for a method of which an epoch re-estimates the batch-norm statistics and nothing learns

    A part that needs the whole target set has a method ``initialize(indices, features, logits)`` and an attribute
    ``refresh``: ``"start"`` (once, before the first step) or ``"epoch"`` (before each epoch). The loop asks
    :meth:`needs_pass` and hands one evaluation pass to :meth:`initialize`, for whichever part asked.

    Inputs: indices (B,), logits (B, K), features (B, D)

    Outputs: scalar loss
    """

    ensemble: TemporalEnsemble | None

    def __init__(
        self,
        objective: Objective,
        refiner: Refiner = one_hot_targets,
        regularizer: Regularizer | None = None,
        labeler: Callable[[Tensor], Tensor] | None = None,
        confidence: Callable[[Tensor, Tensor], Tensor] | None = None,
        ensemble: TemporalEnsemble | None = None,
        shard: Shard | None = None,
        trains: bool = True,
    ):
        super().__init__()
        self.trains = trains
        self.objective = objective
        self.regularizer = regularizer
        self.labeler = labeler
        self.shard = shard
        self.refine(refiner, ensemble, confidence)

    def refine(
        self,
        refiner: Refiner,
        ensemble: TemporalEnsemble | None = None,
        confidence: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        """Replace the refiner, the ensemble it keeps and the confidence it weighs by."""
        self.refiner = refiner
        self.confidence = confidence
        vars(self)["ensemble"] = ensemble  # a part of the refiner already: its state is kept once

    def forward(self, indices: Tensor, logits: Tensor, features: Tensor) -> Tensor:
        visit = self._visit(indices, logits, features)
        loss = self.objective(visit, self.refiner(visit))
        if self.regularizer is not None:
            loss = loss + self.regularizer(visit)
        return loss

    def needs_pass(self, epoch: int) -> bool:
        """Whether any part wants an evaluation pass before this epoch (counted from 0)."""
        return bool(self._parts_to_initialize(epoch))

    def initialize(self, epoch: int, indices: Tensor, features: Tensor, logits: Tensor) -> None:
        """Hand one evaluation pass, (N,), (N, D), (N, K), to the parts that want it before this epoch."""
        for part in self._parts_to_initialize(epoch):
            part.initialize(indices, features, logits)

    def diagnostics(self) -> dict[str, Tensor]:
        """Scalars of the last step, on its device: AnCon's threshold δ and the share of predictions that voted."""
        if self.ensemble is None:
            return {}
        return {"threshold": self.ensemble.threshold, "votes": self.ensemble.vote_share}

    def votes(self, indices: Tensor) -> Tensor | None:
        """f̄ of these samples before normalisation, (B, K) float32; None if no part keeps an ensemble."""
        return None if self.ensemble is None else self.ensemble.votes(self._rows(indices))

    @torch.no_grad()
    def _visit(self, indices: Tensor, logits: Tensor, features: Tensor) -> Visit:
        labels = logits.argmax(1) if self.labeler is None else self.labeler(indices)
        probabilities = logits.float().softmax(1) if self.confidence is None else self.confidence(logits, features)
        return Visit(indices, self._rows(indices), logits, features, labels, probabilities)

    def _rows(self, indices: Tensor) -> Tensor:
        return indices if self.shard is None else self.shard.rows(indices)

    def _parts_to_initialize(self, epoch: int) -> list[Any]:
        due = {"epoch"} if epoch else {"epoch", "start"}
        return [part for part in self.modules() if getattr(part, "refresh", None) in due]
