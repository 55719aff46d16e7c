"""The registry: a method's name -> its composition of labeler, refiner, objective and regulariser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import entry_points
from typing import Any

from torch import Tensor, nn

from tllib_ancon.errors import UserError, unknown_name
from tllib_ancon.self_training.aad import AttractingDispersing
from tllib_ancon.self_training.adaptive_smoothing import AdaptiveSmoothing
from tllib_ancon.self_training.anchored import SCHEDULES, AnchoredConfidence
from tllib_ancon.self_training.composition import (
    BeliefMatching,
    CrossEntropy,
    EnsembleAnchor,
    GeneralizedCrossEntropy,
    InformationMaximization,
    Method,
    Neighborhood,
    NoPseudoLabel,
)
from tllib_ancon.self_training.confidence import CONFIDENCES, DirichletMean, MonteCarloDropout
from tllib_ancon.self_training.elr import EarlyLearningRegularization
from tllib_ancon.self_training.nrc import NeighborhoodReciprocity
from tllib_ancon.self_training.processes import Shard
from tllib_ancon.self_training.shot import CentroidPseudoLabels
from tllib_ancon.self_training.weighting import CONVENTIONS, WEIGHTINGS

ENTRY_POINT_GROUP = "tllib_ancon.methods"
ADAPTIVE = "adaptive"


def _option(default: Any, help_text: str, choices: tuple[str, ...] | None = None, parse: Any = None) -> Any:
    metadata = {"help": help_text, "choices": choices, "parse": parse or type(default)}
    return field(default=default, metadata=metadata)


def parse_smoothing(text: str) -> float | str:
    """``"0.3"`` -> 0.3, and ``"adaptive"`` as it is; :class:`ValueError` for anything else."""
    return text if text == ADAPTIVE else float(text)


@dataclass(frozen=True)
class MethodOptions:
    """Every hyper-parameter a built-in method reads; each part takes its own and ignores the others'.

    The first group belongs to AnCon (:class:`~tllib_ancon.self_training.AnchoredConfidence`), the rest to the part
    that names it. Each field's metadata holds the help text, the choices and the type of its command-line flag.
    """

    smoothing: float | str = _option(
        0.3, "AnCon's λ in [0, 1]: weight of the temporal ensemble in the target; or adaptive", parse=parse_smoothing
    )
    schedule: str = _option("constant", "of λ: constant, full (m/I) or half (min(1, 2m/I))", SCHEDULES)
    beta: float = _option(0.9, "AnCon's β in [0, 1): decay of the confidence's moving average")
    convention: str = _option(
        "authors", "of reading f̄ and of starting δ: the authors' code's or the paper's", CONVENTIONS
    )
    weighting: str = _option("relative", "which predictions enter f̄, and how much", WEIGHTINGS)
    prediction: str = _option("hard", "what enters f̄: the one-hot or the softmax prediction", ("hard", "soft"))
    temperature: float = _option(1.0, "softmax temperature of soft predictions")
    normalize: bool = _option(False, "divide f̄ by its votes")
    storage: str = _option("auto", "how votes are kept; auto: dense up to 256 classes", ("auto", "dense", "sparse"))
    quantile: float = _option(0.9, "of the batch's confidence, for --weighting quantile")
    fixed_threshold: float = _option(0.9, "of the confidence, for --weighting fixed")
    confidence: str = _option("softmax", "what a vote's confidence is taken from", CONFIDENCES)
    dropout_probability: float = _option(0.5, "of a feature, for --confidence mc-dropout; the paper's are 0.2 and 0.5")
    dropout_passes: int = _option(20, "of the head, for --confidence mc-dropout")
    belief_coefficient: float = _option(0.001, "of the divergence, for --confidence belief-matching")

    elr_coefficient: float = _option(3.0, "weight of the early-learning regulariser")
    elr_beta: float = _option(0.9, "decay of the early-learning regulariser's targets")
    q: float = _option(0.8, "exponent of the generalised cross-entropy, in (0, 1]")
    neighbors: int = _option(5, "nearest neighbours of a sample, for NRC and AaD")
    expanded_neighbors: int = _option(5, "nearest neighbours of each neighbour, for NRC")
    reciprocal: bool = _option(True, "NRC: weigh mutual neighbours by their count; off: all 0.1, as the authors' code")
    mixing: str = _option(
        "authors", "NRC: of raw or of normalised votes with the neighbours", ("authors", "normalized")
    )
    search: str = _option(
        "exact", "NRC: neighbours of neighbours anew, or from each sample's last visit", ("exact", "cached")
    )
    shot_coefficient: float = _option(0.3, "SHOT: weight of the pseudo-label loss")
    aad_beta: float = _option(5.0, "AaD: how fast dispersion fades")

    def ensemble(self) -> dict[str, Any]:
        """The arguments of a temporal ensemble."""
        names = ("beta", "convention", "weighting", "prediction", "temperature", "normalize", "storage", "quantile")
        return {name: getattr(self, name) for name in (*names, "fixed_threshold")}


@dataclass(frozen=True)
class Task:
    """What a method is built for: N images, K classes, D features, I steps of training, the model's head, and of many
    processes the samples that this one visits."""

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


def _anchored(task: Task, options: MethodOptions) -> AnchoredConfidence | AdaptiveSmoothing:
    if options.smoothing == ADAPTIVE:
        if options.schedule != "constant":
            raise UserError(
                f"schedule={options.schedule!r} is one of λ, and smoothing='adaptive' has no λ; leave it out"
            )
        return AdaptiveSmoothing(task.num_own_samples, task.num_classes, **options.ensemble())
    return AnchoredConfidence(
        task.num_own_samples,
        task.num_classes,
        smoothing=_fixed_smoothing(options),
        schedule=options.schedule,
        total_steps=task.total_steps,
        **options.ensemble(),
    )


def _fixed_smoothing(options: MethodOptions) -> float:
    if isinstance(options.smoothing, str):
        raise UserError(
            f"smoothing={options.smoothing!r}: expected a number in [0, 1], or 'adaptive' with a method that smooths "
            "pseudo-labels; nrc and aad mix the votes with a fixed weight"
        )
    return options.smoothing


def _regularizer(task: Task, options: MethodOptions) -> EarlyLearningRegularization:
    return EarlyLearningRegularization(
        task.num_own_samples, task.num_classes, coefficient=options.elr_coefficient, beta=options.elr_beta
    )


def _confidence(task: Task, options: MethodOptions) -> nn.Module | None:
    """The part of that name; none for the softmax, which a refiner computes itself."""
    match options.confidence:
        case "softmax":
            return None
        case "belief-matching":
            return DirichletMean()
        case "mc-dropout" if task.head is not None:
            return MonteCarloDropout(task.head, options.dropout_passes, options.dropout_probability)
        case "mc-dropout":
            raise UserError("head is needed by confidence='mc-dropout': pass the model's head")
    raise unknown_name("confidence", options.confidence, CONFIDENCES)


def _cross_entropy(task: Task, options: MethodOptions) -> dict[str, nn.Module]:
    if options.confidence == "belief-matching":
        return {"objective": BeliefMatching(options.belief_coefficient)}
    return {"objective": CrossEntropy()}


def _gce(task: Task, options: MethodOptions) -> dict[str, nn.Module]:
    return {"objective": GeneralizedCrossEntropy(options.q)}


def _nrc(task: Task, options: MethodOptions) -> dict[str, nn.Module]:
    neighborhood = NeighborhoodReciprocity(
        task.num_samples,
        task.num_classes,
        _feature_dim(task),
        neighbors=options.neighbors,
        expanded_neighbors=options.expanded_neighbors,
        reciprocal=options.reciprocal,
        mixing=options.mixing,
        anchor_weight=_fixed_smoothing(options),
        search=options.search,
    )
    return {"objective": Neighborhood(neighborhood)}


def _aad(task: Task, options: MethodOptions) -> dict[str, nn.Module]:
    neighborhood = AttractingDispersing(
        task.num_samples,
        task.num_classes,
        _feature_dim(task),
        neighbors=options.neighbors,
        beta=options.aad_beta,
        total_steps=task.total_steps,
        anchor_weight=_fixed_smoothing(options),
    )
    return {"objective": Neighborhood(neighborhood)}


def _shot(task: Task, options: MethodOptions) -> dict[str, nn.Module]:
    return {
        "objective": InformationMaximization(options.shot_coefficient),
        "labeler": CentroidPseudoLabels(task.num_samples, task.num_classes, _feature_dim(task)),
    }


def _shot_im(task: Task, options: MethodOptions) -> dict[str, nn.Module]:
    return {"objective": InformationMaximization(0.0)}


Parts = Callable[[Task, MethodOptions], dict[str, nn.Module]]

_WITH_PSEUDO_LABELS: dict[str, Parts] = {"self-training": _cross_entropy, "gce": _gce, "shot": _shot}
_WITH_NEIGHBORS: dict[str, Parts] = {"nrc": _nrc, "aad": _aad}
_WITHOUT_PSEUDO_LABELS: dict[str, Parts] = {"shot-im": _shot_im}
_BASES = {**_WITH_PSEUDO_LABELS, **_WITH_NEIGHBORS, **_WITHOUT_PSEUDO_LABELS}
_SHORT_NAMES = {"elr": "self-training+elr", "ancon": "self-training+ancon"}
_NOT_MEANINGFUL = {"shot-im+ancon": "information maximisation uses no pseudo-label that AnCon could smooth"}


def names() -> list[str]:
    """All methods that :func:`create` knows, built-in ones first, then those of other packages."""
    builtin = _builtin_names()
    return builtin + [entry.name for entry in _third_party() if entry.name not in builtin]


def create(
    name: str,
    *,
    num_samples: int,
    num_classes: int,
    feature_dim: int | None = None,
    total_steps: int | None = None,
    head: Callable[[Tensor], Tensor] | None = None,
    shard: Shard | None = None,
    **options: Any,
) -> Method:
    """The method of that name, as a :class:`Method`.

    Args:
        name (str): a composition such as ``ancon``, ``gce+elr`` or ``nrc+ancon``; see :func:`names`
        num_samples (int): N, images of the whole target set
        num_classes (int): K
        feature_dim (int): D, width of the features before the head; needed by ``nrc``, ``aad`` and ``shot``
        total_steps (int): I, steps of the whole training; needed by schedules
        head: (B, D) -> (B, K) logits, the model's head; needed by ``confidence="mc-dropout"``
        shard: of many processes, the samples that this one visits. Default: all
        **options: hyper-parameters, the fields of :class:`MethodOptions`

    Raises:
        UserError: an unknown name (with the nearest match), a combination without meaning (with the reason), an
            unknown option, a value out of range

    A package adds a method through the entry-point group ``tllib_ancon.methods``: an entry ``name =
    module:factory`` whose factory takes ``(task: Task, options: MethodOptions)`` and returns a :class:`Method`.
    """
    task = Task(num_samples, num_classes, feature_dim, total_steps, head, shard)
    method_options = _options(options)
    if name in _NOT_MEANINGFUL:
        raise UserError(f"method {name!r} is not offered: {_NOT_MEANINGFUL[name]}")
    if name in _builtin_names():
        base, _, extra = _SHORT_NAMES.get(name, name).partition("+")
        return _compose(base, extra, task, method_options)
    for entry in _third_party():
        if entry.name == name:
            return entry.load()(task, method_options)
    raise unknown_name("method", name, names())


def _builtin_names() -> list[str]:
    composed = [base + extra for base in _BASES for extra in ("", "+elr", "+ancon")]
    short = {long: name for name, long in _SHORT_NAMES.items()}
    return [short.get(name, name) for name in composed if name not in _NOT_MEANINGFUL]


def _compose(base: str, extra: str, task: Task, options: MethodOptions) -> Method:
    if options.confidence == "belief-matching" and base != "self-training":
        raise UserError(
            f"--confidence belief-matching is a loss in place of the cross-entropy, and {base} has its own; use it "
            "with self-training, elr or ancon"
        )
    parts = _BASES[base](task, options)
    if extra == "elr":
        parts["regularizer"] = _regularizer(task, options)
    anchored = extra == "ancon"
    if anchored:
        parts["confidence"] = _confidence(task, options)
    if base in _WITH_NEIGHBORS:
        parts["refiner"] = EnsembleAnchor(_anchored(task, options).ensemble) if anchored else NoPseudoLabel()
    elif anchored:
        parts["refiner"] = _anchored(task, options)
    elif base in _WITHOUT_PSEUDO_LABELS:
        parts["refiner"] = NoPseudoLabel()
    return Method(**parts, shard=task.shard)


def _options(options: dict[str, Any]) -> MethodOptions:
    known = [field.name for field in fields(MethodOptions)]
    for name in options:
        if name not in known:
            raise unknown_name("method option", name, known)
    return replace(MethodOptions(), **options)


def _feature_dim(task: Task) -> int:
    if task.feature_dim is None:
        raise UserError("feature_dim is needed by methods that use features: pass the model's features_dim")
    return task.feature_dim


def _third_party() -> list[Any]:
    return list(entry_points(group=ENTRY_POINT_GROUP))
