"""Where the confidence of a prediction comes from: an option of methods with votes or a loss of their own."""

from typing import Any, Literal

from tllib_ancon.runtime.errors import BadSetting, named
from tllib_ancon.self_training.method import Method, option


class WithConfidence(Method):
    """Base of methods with the option ``confidence``."""

    confidence: Literal["softmax", "mc-dropout", "belief-matching"] = option(
        "softmax", help="what the confidence of a prediction is taken from"
    )

    @classmethod
    def check_options(cls, options: Any) -> None:
        super().check_options(options)
        names = type(options).model_fields
        if options.confidence == "belief-matching" and "belief_coefficient" not in names:
            raise BadSetting(
                f"{named('confidence', 'belief-matching')} is a loss in place of the cross-entropy, and this method "
                f"has its own",
                "use it with self-training, elr, ancon or ancon-auto",
                setting="confidence",
            )
        if options.confidence == "mc-dropout" and "dropout_passes" not in names:
            raise BadSetting(
                f"{named('confidence', 'mc-dropout')} decides which predictions vote",
                "choose a method with votes, such as ancon",
                setting="confidence",
            )
