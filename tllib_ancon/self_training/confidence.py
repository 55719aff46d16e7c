"""Where the confidence of a prediction comes from: an option of methods with votes or a loss of their own."""

from typing import Any, Literal

from tllib_ancon.runtime.errors import BadSetting, named
from tllib_ancon.self_training.method import Method, option

NEEDED = {
    "belief-matching": ("belief_coefficient", "self-training, elr, ancon or ancon-auto"),
    "mc-dropout": ("dropout_passes", "a method with votes, such as ancon"),
}
"""Confidence -> an option of the methods that can have it, and these methods in words."""


class WithConfidence(Method):
    """Base of methods with the option ``confidence``."""

    confidence: Literal["softmax", "mc-dropout", "belief-matching"] = option(
        "softmax", help="what the confidence of a prediction is taken from"
    )

    @classmethod
    def check_options(cls, options: Any) -> None:
        super().check_options(options)
        needed_option, methods = NEEDED.get(options.confidence, ("confidence", ""))
        if needed_option not in type(options).model_fields:
            raise BadSetting(
                f"{named('confidence', options.confidence)} has no effect with this method",
                f"use it with {methods}",
                setting="confidence",
            )
