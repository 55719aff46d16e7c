"""What methods with votes share: their options, the ensemble, and the distribution that the confidence is taken of."""

from typing import Any

from torch import Tensor

from tllib_ancon.runtime.errors import BadSetting, named
from tllib_ancon.runtime.types import Options
from tllib_ancon.self_training.confidence import WithConfidence
from tllib_ancon.self_training.ensemble import Convention, TemporalEnsemble, VotePrediction, WeightingScheme
from tllib_ancon.self_training.mc_dropout import mc_dropout_probabilities
from tllib_ancon.self_training.method import option, option_of

OF_THE_ENSEMBLE = ("beta", "weighting", "prediction", "temperature", "quantile", "fixed_threshold")


class WithVotes(WithConfidence):
    """Base of methods whose confident predictions vote."""

    beta: float = option_of(
        TemporalEnsemble, "beta", help="AnCon's β in [0, 1): decay of the moving average of the confidence"
    )
    weighting: WeightingScheme = option_of(
        TemporalEnsemble, "weighting", help="which predictions vote, and how much each counts"
    )
    prediction: VotePrediction = option_of(
        TemporalEnsemble, "prediction", help="what a vote is: the one-hot or the softmax prediction"
    )
    temperature: float = option_of(
        TemporalEnsemble, "temperature", help="softmax temperature of soft predictions", needs=("prediction", "soft")
    )
    quantile: float = option_of(
        TemporalEnsemble,
        "quantile",
        help="quantile of the batch's confidence, for the weighting quantile",
        needs=("weighting", "quantile"),
    )
    fixed_threshold: float = option_of(
        TemporalEnsemble,
        "fixed_threshold",
        help="least confidence of a vote, for the weighting fixed",
        needs=("weighting", "fixed"),
    )
    dropout_passes: int = option_of(
        mc_dropout_probabilities,
        "passes",
        help="passes through the head, for the confidence mc-dropout",
        needs=("confidence", "mc-dropout"),
    )
    dropout_probability: float = option_of(
        mc_dropout_probabilities,
        "p",
        help="probability of dropping a feature, for the confidence mc-dropout; the paper's are 0.2 and 0.5",
        needs=("confidence", "mc-dropout"),
    )

    def __init__(self, **sizes_and_options: Any):
        super().__init__(**sizes_and_options)
        if self.confidence == "mc-dropout" and self.head is None:
            raise BadSetting(
                f"{named('confidence', 'mc-dropout')} needs the model's head: pass it as head, or choose another "
                f"{named('confidence')}",
                setting="confidence",
            )

    def ensemble_options(self) -> Options:
        """The options of :class:`~tllib_ancon.self_training.TemporalEnsemble` that this method has."""
        return {name: getattr(self, name) for name in OF_THE_ENSEMBLE}

    def distribution(self, features: Tensor, predictions: Tensor) -> Tensor:
        """The softmax, which is also the mean of belief matching's Dirichlet, or that of MC-dropout."""
        if self.confidence != "mc-dropout" or self.head is None:
            return super().distribution(features, predictions)
        return mc_dropout_probabilities(features, self.head, self.dropout_passes, self.dropout_probability)


class WithWeightedVotes(WithVotes):
    """Base of methods in which the votes have the fixed weight λ."""

    smoothing: float = option(
        0.3, ge=0, le=1, help="AnCon's λ in [0, 1]: weight of the votes in the target; ancon-auto has none"
    )
    convention: Convention = option_of(
        TemporalEnsemble,
        "convention",
        help="when votes are read and how δ starts: as in the authors' code or as in the paper",
    )
    normalize: bool = option_of(TemporalEnsemble, "normalize", help="divide a sample's votes by their number")

    def ensemble_options(self) -> Options:
        return {**super().ensemble_options(), "convention": self.convention, "normalize": self.normalize}
