"""A method of adaptation: a class with its options, its targets and its loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, ClassVar, get_type_hints

import torch
from pydantic import Field
from pydantic.fields import FieldInfo
from torch import Tensor, nn

from tllib_ancon.config.settings import Settings, settings_class
from tllib_ancon.runtime.errors import BadModel
from tllib_ancon.runtime.processes import Shard
from tllib_ancon.self_training.ensemble import TemporalEnsemble


@dataclass(frozen=True)
class Visit:
    """One batch, as a method sees it.

    Attributes:
        indices: (B,) int64, positions in the whole target set
        rows: (B,) int64, positions among the samples that this process visits; of one process the same
        logits: (B, K) of any floating type, with gradient: the loss is taken of these
        predictions: (B, K) float32 logits without gradient: labels are made from these. One view: those of the step;
            two views: the logarithm of the mean softmax. With a teacher its weighted log-probabilities are added
        features: (B, D) of any floating type, with gradient: what the head receives
        labels: (B,) int64 pseudo-labels, by :meth:`Method.pseudo_labels`
        probabilities: (B, K) float32 without gradient, by :meth:`Method.distribution`
    """

    indices: Tensor
    rows: Tensor
    logits: Tensor
    predictions: Tensor
    features: Tensor
    labels: Tensor
    probabilities: Tensor


def option(
    default: Any,
    *,
    help: str,
    gt: float | None = None,
    ge: float | None = None,
    lt: float | None = None,
    le: float | None = None,
) -> Any:
    """An option of a method, in the body of its class: ``q: float = option(0.8, gt=0, le=1, help="exponent")``.

    It becomes a keyword of :func:`tllib_ancon.adapt`, a flag, an entry of TOML files, and an attribute of the method.

    Args:
        default: the value where nothing is set
        help: what it sets, its unit, and when to change it
        gt, ge, lt, le (float): bounds: above, at least, below, at most
    """
    return Field(default, description=help, gt=gt, ge=ge, lt=lt, le=le)


def option_of(part: Callable[..., Any], argument: str, *, help: str) -> Any:
    """An :func:`option` with the default, type and range of an argument of a class, or function, of the algorithm."""
    parameter = signature(part).parameters[argument]
    field: FieldInfo = option(parameter.default, help=help)
    field.annotation = parameter.annotation
    return field


class Method(nn.Module):
    """Base of all methods: self-training by hard pseudo-labels, without a loss.

    .. math::
        L = objective(visit, targets(visit)) + regularizer(visit)

    A subclass defines :meth:`objective` and may override the other methods. State sits in buffers and submodules, so
    that it is moved, saved and resumed with the method.

    A submodule, or the method itself, that needs predictions of all images has the attribute ``refresh`` and a method
    ``initialize(indices, features, logits)``. ``refresh`` is ``"start"`` (before the first step) or ``"epoch"`` (before
    each epoch).

    Args:
        num_samples (int): N, images of the whole target set
        num_classes (int): K
        feature_dim (int): D, width of the features before the head. Default: the model has none
        total_steps (int): I, steps of the whole training. Default: unknown
        head: (B, D) -> (B, K) logits, the model's head. Default: the model has none
        shard: of many processes, the samples that this one visits. Default: all
        **options: values of the options of the class

    Inputs: indices (B,), logits (B, K), features (B, D), and logits and features of a second view. Labels are made
    from the mean prediction of both views.

    Outputs: scalar loss

    Attributes:
        num_rows: samples that this process visits: the length of a per-sample state, read at ``visit.rows``
        Options: the options of the class as a class of settings
    """

    training_defaults: ClassVar[Mapping[str, Any]] = {}
    """Settings of the training whose default differs with this method, such as ``{"adapted": "all"}``."""
    trains: ClassVar[bool] = True
    """False: an epoch re-estimates the batch-norm statistics, and nothing learns."""
    learns_from_both_views: ClassVar[bool] = True
    """True: the loss is the mean over both views. False: it is of the first view."""
    makes_labels: ClassVar[bool] = True
    """False: the loss reads ``visit.logits`` alone, so that a teacher has no effect."""
    Options: ClassVar[type[Settings]]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        kinds = get_type_hints(cls, include_extras=True)
        fields: dict[str, Any] = {}
        for base in cls.__mro__:
            for name, field in vars(base).items():
                if isinstance(field, FieldInfo):
                    fields.setdefault(name, (field.annotation or kinds.get(name, type(field.default)), field))
        cls.Options = settings_class(f"{cls.__name__}Options", **fields)

    def __init__(
        self,
        *,
        num_samples: int,
        num_classes: int,
        feature_dim: int | None = None,
        total_steps: int | None = None,
        head: Callable[[Tensor], Tensor] | None = None,
        shard: Shard | None = None,
        **options: Any,
    ):
        super().__init__()
        self.num_samples = num_samples
        self.num_classes = num_classes
        self.feature_dim = feature_dim
        self.total_steps = total_steps
        self.head_of_model = [head]  # in a list: the head's weights are the model's, not the method's
        self.shard = Shard(num_samples) if shard is None else shard
        self.num_rows = len(self.shard)
        self.teacher: Callable[[Tensor, Tensor], Tensor] | None = None  # indices and logits -> logits of labels
        for name, value in type(self).Options(**options):
            setattr(self, name, value)

    # What a method may override.

    def targets(self, visit: Visit) -> Tensor | None:
        """The targets (B, K) float32 of the loss: by default the one-hot pseudo-labels, E_1(ŷ) (Lee, 2013)."""
        return one_hot(visit.labels, self.num_classes)

    def objective(self, visit: Visit, targets: Any) -> Tensor:
        """The loss, a scalar with gradient for ``visit.logits``."""
        raise NotImplementedError

    def regularizer(self, visit: Visit) -> Tensor | float:
        """A loss that is added to the objective."""
        return 0.0

    def pseudo_labels(self, indices: Tensor, predictions: Tensor) -> Tensor:
        """ŷ, (B,) int64: by default the class of the largest prediction."""
        return predictions.argmax(1)

    def distribution(self, features: Tensor, predictions: Tensor) -> Tensor:
        """The predictive distribution (B, K), whose maximum is the confidence: by default the softmax."""
        return predictions.softmax(1)

    # What the training loop calls.

    def forward(
        self, indices: Tensor, logits: Tensor, features: Tensor, second_view: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        prediction_of_views = logits if second_view is None else mean_prediction(logits, second_view[0])
        visit = self.visit(indices, logits, features, prediction_of_views)
        targets = self.targets(visit)
        loss = self.objective(visit, targets)
        if second_view is not None and self.learns_from_both_views:
            visit_of_second_view = replace(visit, logits=second_view[0], features=second_view[1])
            loss = (loss + self.objective(visit_of_second_view, targets)) / 2
        return loss + self.regularizer(visit)

    @torch.no_grad()
    def visit(self, indices: Tensor, logits: Tensor, features: Tensor, prediction_of_views: Tensor) -> Visit:
        predictions = self._with_teacher(indices, prediction_of_views.detach().float())
        return Visit(
            indices=indices,
            rows=self.shard.rows(indices),
            logits=logits,
            predictions=predictions,
            features=features,
            labels=self.pseudo_labels(indices, predictions),
            probabilities=self.distribution(features, predictions),
        )

    def needs_pass(self, epoch: int) -> bool:
        """Whether an evaluation pass over all images has to come before this epoch (counted from 0)."""
        return bool(self._parts_to_initialize(epoch))

    def begin_epoch(self, epoch: int, indices: Tensor, features: Tensor, logits: Tensor) -> None:
        """Hand one evaluation pass, (N,), (N, D), (N, K), to all parts that need it before this epoch."""
        predictions = self._with_teacher(indices, logits)
        for part in self._parts_to_initialize(epoch):
            part.initialize(indices, features, predictions)

    def _with_teacher(self, indices: Tensor, logits: Tensor) -> Tensor:
        """The logits (B, K) that labels are made from."""
        return logits if self.teacher is None else self.teacher(indices, logits)

    def diagnostics(self) -> dict[str, Tensor]:
        """Scalars of the last step, on its device: AnCon's threshold δ and the share of predictions that voted."""
        ensemble = self.ensemble
        if ensemble is None:
            return {}
        return {"threshold": ensemble.threshold, "votes": (ensemble.last_weights > 0).float().mean()}

    @property
    def ensemble(self) -> TemporalEnsemble | None:
        """The votes that this method keeps, if it keeps some."""
        return next((part for part in self.modules() if isinstance(part, TemporalEnsemble)), None)

    def votes(self, indices: Tensor) -> Tensor | None:
        """f̄ of these samples before normalisation, (B, K) float32; None for a method without votes."""
        ensemble = self.ensemble
        return None if ensemble is None else ensemble.votes(self.shard.rows(indices))

    # What methods share.

    @property
    def head(self) -> Callable[[Tensor], Tensor] | None:
        return self.head_of_model[0]

    @property
    def feature_sizes(self) -> tuple[int, int, int]:
        """N, K and D, of a method that needs features."""
        if self.feature_dim is None:
            raise BadModel(
                "this method needs the features that enter the model's head, and no layer alone gives its logits",
                'in Python name the head by head="NAME", several whose mean are the logits by head="NAME,NAME", or in '
                "an own loop pass the width of its input as feature_dim",
                setting="head",
            )
        return self.num_samples, self.num_classes, self.feature_dim

    def _parts_to_initialize(self, epoch: int) -> list[Any]:
        due = ("epoch",) if epoch else ("epoch", "start")
        return [part for part in self.modules() if getattr(part, "refresh", None) in due]


def mean_prediction(logits: Tensor, logits_of_second_view: Tensor) -> Tensor:
    r"""The logarithm of the mean softmax of two views, :math:`\log((f(x) + f(x')) / 2)`: (B, K) float32."""
    log_probabilities = logits.float().log_softmax(1)
    log_probabilities_of_second_view = logits_of_second_view.float().log_softmax(1)
    return torch.logaddexp(log_probabilities, log_probabilities_of_second_view) - math.log(2)


def one_hot(labels: Tensor, num_classes: int) -> Tensor:
    """(B,) int64 -> (B, K) float32. Torch's own reads the labels' range, for which a device has to wait."""
    return torch.zeros(len(labels), num_classes, device=labels.device).scatter_(1, labels.unsqueeze(1), 1.0)
