"""The settings of each method and of what composes with it, free of torch: a wrong one is refused at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tllib_ancon.errors import UserError, one_line
from tllib_ancon.settings import Settings, default_of, setting, settings_of

SCHEDULES = ("constant", "full", "half")
CONVENTIONS = ("authors", "paper")
WEIGHTINGS = ("relative", "entropy", "max-probability", "quantile", "fixed", "uniform")
PREDICTIONS = ("hard", "soft")
STORAGES = ("auto", "dense", "sparse")
CONFIDENCES = ("softmax", "mc-dropout", "belief-matching")
MIXINGS = ("authors", "normalized")
SEARCHES = ("exact", "cached")
CLASS_PRIORS = ("uniform", "estimate")

LARGEST_PRIOR_FILE = 10**7
"""Bytes."""


def _confidence() -> Any:
    return setting("softmax", "what the confidence of a prediction is taken from", choices=CONFIDENCES)


def _neighbors(default: int) -> Any:
    return setting(default, "nearest neighbours of a sample; 5 for NRC, 3 for AaD (5 on VisDA2017)", at_least=1)


def _numbers(path: Path) -> tuple[float, ...]:
    """The numbers that a file holds, between white space or commas.

    Raises:
        UserError: no such file, or no numbers of at least 0 in it
    """
    expected = f"`class_prior` must be uniform, estimate or a file of numbers, got {str(path)!r}"
    if not path.is_file() or path.stat().st_size > LARGEST_PRIOR_FILE:
        raise UserError(f"{expected}: {'too large' if path.is_file() else 'no such file'}")
    try:
        numbers = tuple(float(word) for word in path.read_text(encoding="utf-8").replace(",", " ").split())
    except (OSError, ValueError) as error:
        raise UserError(f"{expected}: {one_line(error)}") from error
    if not numbers or not all(0 <= value < math.inf for value in numbers):
        raise UserError(f"{expected}: it must hold a number of at least 0 for each class")
    return numbers


class _Dependent(Settings):
    """Settings some of which are read only where another has a certain value."""

    READ_IF: ClassVar[dict[str, tuple[str, str]]] = {}
    """Setting -> the other one and its value."""

    def __post_init__(self) -> None:
        super().__post_init__()
        defaults = {name: default_of(field) for name, field in settings_of(type(self)).items()}
        for owner in type(self).__mro__:
            for name, (other, needed) in vars(owner).get("READ_IF", {}).items():
                value = getattr(self, name)
                if value != defaults[name] and getattr(self, other) != needed:
                    raise UserError(
                        f"`{name}={value}` has no effect without `{other}={needed}`; add it or leave both out"
                    )


@dataclass(frozen=True)
class VoteOptions(_Dependent):
    """Which predictions vote, of AnCon in each of its forms."""

    READ_IF: ClassVar = {
        "temperature": ("prediction", "soft"),
        "quantile": ("weighting", "quantile"),
        "fixed_threshold": ("weighting", "fixed"),
        "dropout_probability": ("confidence", "mc-dropout"),
        "dropout_passes": ("confidence", "mc-dropout"),
    }

    beta: float = setting(
        0.9, "AnCon's β in [0, 1): decay of the moving average of the confidence", at_least=0, below=1
    )
    weighting: str = setting("relative", "which predictions vote, and how much each counts", choices=WEIGHTINGS)
    prediction: str = setting("hard", "what a vote is: the one-hot or the softmax prediction", choices=PREDICTIONS)
    temperature: float = setting(1.0, "softmax temperature of soft predictions", above=0)
    storage: str = setting("auto", "how votes are kept; auto: dense up to 256 classes", choices=STORAGES)
    quantile: float = setting(0.9, "quantile of the batch's confidence, for weighting=quantile", at_least=0, at_most=1)
    fixed_threshold: float = setting(0.9, "least confidence of a vote, for weighting=fixed", at_least=0, at_most=1)
    confidence: str = _confidence()
    dropout_probability: float = setting(
        0.5, "probability of dropping a feature, for confidence=mc-dropout; the paper's are 0.2 and 0.5", at_least=0,
        below=1,
    )  # fmt: skip
    dropout_passes: int = setting(20, "passes through the head, for confidence=mc-dropout", at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.confidence == "belief-matching" and not isinstance(self, SelfTrainingOptions):
            raise UserError(
                "`confidence=belief-matching` is a loss in place of the cross-entropy, and this method has its own; "
                "use it with self-training, elr, ancon or ancon-auto"
            )

    def ensemble(self) -> dict[str, Any]:
        """The arguments of a temporal ensemble."""
        names = ("beta", "weighting", "prediction", "temperature", "storage", "quantile", "fixed_threshold")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class AnchorOptions(VoteOptions):
    """AnCon's votes and their weight λ, as methods of neighbourhoods mix them into their neighbours."""

    smoothing: float = setting(
        0.3, "AnCon's λ in [0, 1]: weight of the votes in the target; ancon-auto has none", at_least=0, at_most=1
    )
    convention: str = setting(
        "authors", "when votes are read and how δ starts: as in the authors' code or as in the paper",
        choices=CONVENTIONS,
    )  # fmt: skip
    normalize: bool = setting(False, "divide a sample's votes by their number")

    def ensemble(self) -> dict[str, Any]:
        return {**super().ensemble(), "convention": self.convention, "normalize": self.normalize}


@dataclass(frozen=True)
class AnConOptions(AnchorOptions):
    """AnCon as in the paper."""

    schedule: str = setting(
        "constant", "λ over training: constant, full (step/steps) or half (min(1, 2 step/steps))", choices=SCHEDULES
    )


@dataclass(frozen=True)
class AnConAutoOptions(VoteOptions):
    """AnCon without λ."""

    READ_IF: ClassVar = {"prior_shrinkage": ("class_prior", "estimate")}

    class_prior: str | tuple[float, ...] = setting(
        "estimate",
        "how often each class occurs in the target: estimate (from the start model's predictions), uniform, or a file "
        "of K numbers in the order of the classes",
        metavar="FILE|uniform|estimate",
        at_least=0,
    )
    prior_shrinkage: float | None = setting(
        None,
        "share of equal classes in the prior, for class_prior=estimate (default: the less reliable the predictions, "
        "the more)",
        at_least=0,
        at_most=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.class_prior, str) and self.class_prior not in CLASS_PRIORS:
            object.__setattr__(self, "class_prior", _numbers(Path(self.class_prior)))


@dataclass(frozen=True)
class ELROptions(Settings):
    """Early-learning regularisation."""

    elr_coefficient: float = setting(3.0, "weight of the early-learning regulariser", at_least=0)
    elr_beta: float = setting(0.9, "decay of the early-learning regulariser's targets", at_least=0, below=1)


@dataclass(frozen=True)
class SelfTrainingOptions(_Dependent):
    """Cross-entropy, or belief matching in its place."""

    READ_IF: ClassVar = {"belief_coefficient": ("confidence", "belief-matching")}

    confidence: str = _confidence()
    belief_coefficient: float = setting(
        0.001, "weight of the divergence, for confidence=belief-matching", at_least=0
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.confidence == "mc-dropout" and not isinstance(self, VoteOptions):
            raise UserError("`confidence=mc-dropout` decides which predictions vote, and this method has no votes")


@dataclass(frozen=True)
class GCEOptions(Settings):
    """Generalised cross-entropy."""

    q: float = setting(0.8, "exponent of the generalised cross-entropy, in (0, 1]", above=0, at_most=1)


@dataclass(frozen=True)
class SHOTOptions(Settings):
    """SHOT with its pseudo-labels."""

    shot_coefficient: float = setting(0.3, "SHOT: weight of the pseudo-label loss", at_least=0)


@dataclass(frozen=True)
class NRCOptions(Settings):
    """Neighbourhood reciprocity clustering."""

    neighbors: int = _neighbors(5)
    expanded_neighbors: int = setting(5, "nearest neighbours of each neighbour, for NRC", at_least=1)
    reciprocal: bool = setting(True, "NRC: weigh mutual neighbours by their count; off: all 0.1, as the authors' code")
    search: str = setting(
        "exact", "NRC: neighbours of neighbours anew, or from each sample's last visit", choices=SEARCHES
    )


@dataclass(frozen=True)
class NRCAnConOptions(NRCOptions, AnchorOptions):
    """NRC with AnCon's votes among the neighbours' predictions."""

    mixing: str = setting("authors", "NRC: raw or normalised votes mixed with the neighbours", choices=MIXINGS)


@dataclass(frozen=True)
class NRCAnConAutoOptions(NRCOptions, VoteOptions):
    """The same without λ."""


@dataclass(frozen=True)
class AaDOptions(Settings):
    """Attracting and dispersing."""

    neighbors: int = _neighbors(3)
    aad_beta: float = setting(
        0.0, "AaD: how fast dispersion fades; by default 1 on Office31, 5 on VisDA2017, 0 elsewhere", at_least=0
    )


AAD_BY_DATASET = {"Office31": {"aad_beta": 1.0}, "VisDA2017": {"neighbors": 5, "aad_beta": 5.0}}
"""Dataset -> defaults of AaD there, those of its official code; on OfficeHome they are those of everywhere."""


@dataclass(frozen=True)
class AaDAnConOptions(AaDOptions, AnchorOptions):
    """AaD with AnCon's votes among the neighbours' predictions."""


@dataclass(frozen=True)
class AaDAnConAutoOptions(AaDOptions, VoteOptions):
    """The same without λ."""
