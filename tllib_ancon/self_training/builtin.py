"""The built-in methods and what composes with a method, made of their parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from tllib_ancon.errors import UserError
from tllib_ancon.self_training.aad import AttractingDispersing
from tllib_ancon.self_training.adaptive_smoothing import AdaptiveSmoothing
from tllib_ancon.self_training.anchored import AnchoredConfidence
from tllib_ancon.self_training.belief_matching import belief_matching_loss
from tllib_ancon.self_training.elr import EarlyLearningRegularization
from tllib_ancon.self_training.ensemble import TemporalEnsemble
from tllib_ancon.self_training.gce import generalized_cross_entropy
from tllib_ancon.self_training.mc_dropout import mc_dropout_probabilities
from tllib_ancon.self_training.method import Method, Part, Task, Visit, no_targets
from tllib_ancon.self_training.nrc import NeighborhoodReciprocity
from tllib_ancon.self_training.options import (
    AaDAnConAutoOptions,
    AaDAnConOptions,
    AaDOptions,
    AnConAutoOptions,
    AnConOptions,
    ELROptions,
    GCEOptions,
    NRCAnConAutoOptions,
    NRCAnConOptions,
    NRCOptions,
    SelfTrainingOptions,
    SHOTOptions,
    VoteOptions,
)
from tllib_ancon.self_training.pseudo_label import cross_entropy
from tllib_ancon.self_training.shot import CentroidPseudoLabels, information_maximization
from tllib_ancon.settings import Settings


def self_training(task: Task, options: SelfTrainingOptions) -> Method:
    if options.confidence == "belief-matching":
        coefficient = options.belief_coefficient
        return Method(lambda visit, targets: belief_matching_loss(visit.logits, targets, coefficient))
    return Method(lambda visit, targets: cross_entropy(visit.logits, targets))


def gce(task: Task, options: GCEOptions) -> Method:
    return Method(lambda visit, targets: generalized_cross_entropy(visit.logits, targets, options.q))


def shot(task: Task, options: SHOTOptions) -> Method:
    def objective(visit: Visit, targets: Tensor) -> Tensor:
        loss = information_maximization(visit.logits)
        return loss + options.shot_coefficient * cross_entropy(visit.logits, targets)

    return Method(objective, labeler=CentroidPseudoLabels(task.num_samples, task.num_classes, _feature_dim(task)))


def shot_im(task: Task, options: Settings) -> Method:
    return Method(lambda visit, targets: information_maximization(visit.logits), refiner=no_targets)


def adabn(task: Task, options: Any) -> Method:
    """AdaBN: the target's batch-norm statistics, and no training (Li et al., 2016)."""
    return Method(objective=lambda visit, targets: visit.logits.sum() * 0, refiner=no_targets, trains=False)


def nrc(task: Task, options: NRCOptions, **mixing: Any) -> Method:
    neighborhood = NeighborhoodReciprocity(
        task.num_samples,
        task.num_classes,
        _feature_dim(task),
        neighbors=options.neighbors,
        expanded_neighbors=options.expanded_neighbors,
        reciprocal=options.reciprocal,
        search=options.search,
        **mixing,
    )
    return Method(Part(neighborhood, _of_neighborhood), refiner=no_targets)


def nrc_ancon(task: Task, options: NRCAnConOptions) -> Method:
    """NRC whose neighbours' predictions have AnCon's votes mixed in, with the fixed weight λ."""
    method = nrc(task, options, mixing=options.mixing, anchor_weight=options.smoothing)
    return _with_votes(method, task, options)


def nrc_ancon_auto(task: Task, options: NRCAnConAutoOptions) -> Method:
    """The same without λ: a neighbour's prediction counts as one more vote, so that the votes of a sample that has Q of
    them weigh Q / (1 + Q). Classes are not weighted; NRC's own term keeps predictions diverse."""
    return _with_votes(nrc(task, options, mixing="adaptive"), task, options)


def aad(task: Task, options: AaDOptions, **mixing: Any) -> Method:
    neighborhood = AttractingDispersing(
        task.num_samples,
        task.num_classes,
        _feature_dim(task),
        neighbors=options.neighbors,
        beta=options.aad_beta,
        total_steps=task.total_steps,
        **mixing,
    )
    return Method(Part(neighborhood, _of_neighborhood), refiner=no_targets)


def aad_ancon(task: Task, options: AaDAnConOptions) -> Method:
    """AaD whose neighbours' predictions have AnCon's votes, made distributions, mixed in, with the fixed weight λ."""
    return _with_votes(aad(task, options, anchor_weight=options.smoothing), task, options)


def aad_ancon_auto(task: Task, options: AaDAnConAutoOptions) -> Method:
    """The same without λ, as :func:`nrc_ancon_auto`; here dispersion keeps predictions diverse."""
    return _with_votes(aad(task, options, mixing="adaptive"), task, options)


def elr(method: Method, task: Task, options: ELROptions) -> None:
    """Add early-learning regularisation to a method."""
    regularizer = EarlyLearningRegularization(
        task.num_own_samples, task.num_classes, coefficient=options.elr_coefficient, beta=options.elr_beta
    )
    method.regularizer = Part(regularizer, lambda visit: (visit.rows, visit.logits))


def ancon(method: Method, task: Task, options: AnConOptions) -> None:
    """Smooth a method's pseudo-labels with its votes, as in the paper."""
    anchored = AnchoredConfidence(
        task.num_own_samples,
        task.num_classes,
        smoothing=options.smoothing,
        schedule=options.schedule,
        total_steps=task.total_steps,
        **options.ensemble(),
    )
    method.refine(Part(anchored, _of_refiner), anchored.ensemble, _confidence(task, options))


def ancon_auto(method: Method, task: Task, options: AnConAutoOptions) -> None:
    """Smooth a method's pseudo-labels with its votes, without λ, and weigh the classes."""
    adaptive = AdaptiveSmoothing(
        task.num_own_samples,
        task.num_classes,
        class_prior=options.class_prior,
        prior_shrinkage=options.prior_shrinkage,
        **options.ensemble(),
    )
    method.refine(Part(adaptive, _of_refiner), adaptive.ensemble, _confidence(task, options))


def _of_refiner(visit: Visit) -> tuple[Tensor, ...]:
    return visit.rows, visit.logits.detach(), visit.labels, visit.probabilities


def _of_neighborhood(visit: Visit, anchors: Tensor | None) -> tuple[Tensor | None, ...]:
    return visit.indices, visit.features, visit.logits, anchors


def _with_votes(method: Method, task: Task, options: VoteOptions) -> Method:
    """The method with votes as its targets, which a neighbourhood mixes with its neighbours' predictions."""
    ensemble = TemporalEnsemble(task.num_own_samples, task.num_classes, **options.ensemble())
    refiner = Part(ensemble, lambda visit: (visit.rows, visit.logits, visit.probabilities))
    method.refine(refiner, ensemble, _confidence(task, options))
    return method


def _confidence(task: Task, options: VoteOptions) -> Callable[[Tensor, Tensor], Tensor] | None:
    """``(logits, features) -> (B, K)``; None for the softmax, which is also the mean of belief matching's Dirichlet."""
    if options.confidence != "mc-dropout":
        return None
    if task.head is None:
        raise UserError("`head` is needed by `confidence=mc-dropout`: pass the model's head")
    head, passes, p = task.head, options.dropout_passes, options.dropout_probability
    return lambda logits, features: mc_dropout_probabilities(features, head, passes, p)


def _feature_dim(task: Task) -> int:
    if task.feature_dim is None:
        raise UserError(
            "this method needs the features that enter the model's head, and the model has no Linear layer as its "
            "head: name one with `head`, or pass the width of its input as `feature_dim`"
        )
    return task.feature_dim
