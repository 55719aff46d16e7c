"""One adaptation step, composed of parts that each read a visit."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from tllib_ancon.errors import UserError
from tllib_ancon.processes import Shard
from tllib_ancon.self_training.checks import Option, annotated
from tllib_ancon.self_training.ensemble import TemporalEnsemble
from tllib_ancon.settings import Settings, settings_class


@dataclass(frozen=True)
class Visit:
    """One batch, as each part of a method sees it.

    Attributes:
        indices: (B,) int64, positions in the whole target set
        rows: (B,) int64, positions among the samples that this process visits; of one process the same
        logits: (B, K) of any floating type, with gradient: the loss is taken of these
        predictions: (B, K) float32 logits without gradient: labels are made from these. One view: those of the step;
            two views: the logarithm of the mean softmax
        features: (B, D) of any floating type, with gradient: what the head receives
        labels: (B,) int64, pseudo-labels: the class of the largest prediction, or those of the method's labeler
        probabilities: (B, K) float32 without gradient, the predictive distribution: the softmax of ``predictions``, or
            that of the method's confidence
        prior: (K,) float32 of sum 1, how often each class occurs, of a refiner that knows it
    """

    indices: Tensor
    rows: Tensor
    logits: Tensor
    predictions: Tensor
    features: Tensor
    labels: Tensor
    probabilities: Tensor
    prior: Tensor | None = None


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

    @property
    def sizes(self) -> tuple[int, int, int]:
        """N, K and D, of a method that needs features."""
        if self.feature_dim is None:
            raise UserError(
                "this method needs the features that enter the model's head, and the model has no Linear layer as its "
                "head: name one with `head`, or pass the width of its input as `feature_dim`"
            )
        return self.num_samples, self.num_classes, self.feature_dim


def mean_prediction(logits: Tensor, other: Tensor) -> Tensor:
    r"""The logarithm of the mean softmax of two views, :math:`\log((f(x) + f(x')) / 2)`: (B, K) float32."""
    return torch.logaddexp(logits.float().log_softmax(1), other.float().log_softmax(1)) - math.log(2)


def one_hot(labels: Tensor, num_classes: int) -> Tensor:
    """(B,) int64 -> (B, K) float32. Torch's own reads the labels' range, for which a device has to wait."""
    return torch.zeros(len(labels), num_classes, device=labels.device).scatter_(1, labels.unsqueeze(1), 1.0)


def one_hot_targets(visit: Visit) -> Tensor:
    """The refiner of plain self-training, E_1(ŷ) (Lee, 2013): (B, K) float32."""
    return one_hot(visit.labels, visit.logits.shape[1])


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
        shard: of many processes, the samples that this one visits. Default: all
        trains: False for a method of which an epoch re-estimates the batch-norm statistics and nothing learns

    A part that needs predictions of many images has a method ``initialize(indices, features, logits)`` and an attribute
    ``refresh``: ``"start"`` (of all images, before the first step), ``"epoch"`` (of all images, before each epoch) or
    ``"sample"`` (of a random sample, before the first step). The loop asks :meth:`needs_pass` and :meth:`needs_all` and
    hands one evaluation pass to :meth:`initialize`.

    Inputs: indices (B,), logits (B, K), features (B, D), and logits and features of a second view. Labels are made
    from the mean prediction of both views, and the loss is the mean over both. An objective with a state (a
    :class:`Part`) gets the first view alone.

    Outputs: scalar loss
    """

    def __init__(
        self,
        objective: Callable[[Visit, Any], Tensor],
        refiner: Callable[[Visit], Tensor | None] = one_hot_targets,
        regularizer: Callable[[Visit], Tensor] | None = None,
        labeler: Callable[[Tensor], Tensor] | None = None,
        confidence: Callable[[Tensor, Tensor], Tensor] | None = None,
        shard: Shard | None = None,
        trains: bool = True,
    ):
        super().__init__()
        self.objective, self.refiner, self.regularizer = objective, refiner, regularizer
        self.labeler, self.confidence = labeler, confidence
        self.shard, self.trains = shard, trains

    @property
    def ensemble(self) -> TemporalEnsemble | None:
        """The votes of the refiner, if it keeps some."""
        return next((part for part in self.modules() if isinstance(part, TemporalEnsemble)), None)

    def forward(
        self, indices: Tensor, logits: Tensor, features: Tensor, other: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        visit = self._visit(indices, logits, features, logits if other is None else mean_prediction(logits, other[0]))
        targets = self.refiner(visit)
        loss = self.objective(visit, targets)
        if other is not None and not isinstance(self.objective, Part):
            loss = (loss + self.objective(replace(visit, logits=other[0], features=other[1]), targets)) / 2
        return loss if self.regularizer is None else loss + self.regularizer(visit)

    def needs_pass(self, epoch: int) -> bool:
        """Whether any part wants an evaluation pass before this epoch (counted from 0)."""
        return bool(self._parts_to_initialize(epoch))

    def needs_all(self, epoch: int) -> bool:
        """Whether this pass has to hold all images; a random sample serves otherwise."""
        return any(part.refresh != "sample" for part in self._parts_to_initialize(epoch))

    def initialize(self, epoch: int, indices: Tensor, features: Tensor, logits: Tensor) -> None:
        """Hand one evaluation pass, (N,), (N, D), (N, K), to the parts that want it before this epoch."""
        for part in self._parts_to_initialize(epoch):
            part.initialize(indices, features, logits)

    def diagnostics(self) -> dict[str, Tensor]:
        """Scalars of the last step, on its device: AnCon's threshold δ and the share of predictions that voted."""
        ensemble = self.ensemble
        return {} if ensemble is None else {"threshold": ensemble.threshold, "votes": ensemble.vote_share}

    def votes(self, indices: Tensor) -> Tensor | None:
        """f̄ of these samples before normalisation, (B, K) float32; None if no part keeps an ensemble."""
        ensemble = self.ensemble
        return None if ensemble is None else ensemble.votes(self._rows(indices))

    @torch.no_grad()
    def _visit(self, indices: Tensor, logits: Tensor, features: Tensor, predictions: Tensor) -> Visit:
        predictions = predictions.detach().float()
        labels = predictions.argmax(1) if self.labeler is None else self.labeler(indices)
        probabilities = predictions.softmax(1) if self.confidence is None else self.confidence(logits, features)
        prior = getattr(getattr(self.refiner, "module", None), "prior", None)
        return Visit(indices, self._rows(indices), logits, predictions, features, labels, probabilities, prior)

    def _rows(self, indices: Tensor) -> Tensor:
        return indices if self.shard is None else self.shard.rows(indices)

    def _parts_to_initialize(self, epoch: int) -> list[Any]:
        due = {"epoch"} if epoch else {"epoch", "start", "sample"}
        return [part for part in self.modules() if getattr(part, "refresh", None) in due]


class Options(Settings):
    """Settings of a method. A setting that depends on another one is an error without it."""

    def check(self) -> None:
        for name, own in type(self).model_fields.items():
            value = getattr(self, name)
            for other, needed in [entry.read_if for entry in own.metadata if getattr(entry, "read_if", None)]:
                if value != own.default and getattr(self, other) != needed:
                    raise UserError(
                        f"`{name}={value}` has no effect without `{other}={needed}`; add it or leave both out"
                    )

    def of(self, part: Callable[..., Any]) -> dict[str, Any]:
        own = type(self).model_fields
        return {parameter: getattr(self, name) for parameter, name, _ in _options(part) if name in own}


def options_of(*owners: Any, without: Sequence[str] = ()) -> type[Options]:
    """The settings of these classes and functions together: parameters with an :class:`Option`."""
    bases = tuple(owner for owner in owners if isinstance(owner, type) and issubclass(owner, Options))
    parts = [owner for owner in owners if owner not in bases]
    fields: dict[str, Any] = {name: kind for part in parts for _, name, kind in _options(part) if name not in without}
    return settings_class("Options", *bases, Options, **fields)


def _options(part: Callable[..., Any]) -> Iterator[tuple[str, str, tuple[Any, Any]]]:
    for parameter, (kind, default) in annotated(part).items():
        for entry in getattr(kind, "__metadata__", ()):
            if isinstance(entry, Option):
                yield parameter, entry.name or parameter, (kind, Field(default, description=entry.description))
