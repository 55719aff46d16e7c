"""What self-training and methods with votes share: where the confidence comes from, and the fitted rate."""

from typing import Any, Literal

from tllib_ancon.runtime.errors import BadSetting, named
from tllib_ancon.self_training.method import Method, option

NEEDED = {
    "belief-matching": ("belief_coefficient", "self-training, elr, ancon or ancon-auto"),
    "mc-dropout": ("dropout_passes", "a method with votes, such as ancon"),
}
"""Confidence -> an option of the methods that can have it, and these methods in words."""


class WithConfidence(Method):
    """Base of self-training and of methods with votes."""

    confidence: Literal["softmax", "mc-dropout", "belief-matching"] = option(
        "softmax", help="what the confidence of a prediction is taken from"
    )
    step_change: float | None = option(
        None,
        gt=0,
        lt=1,
        help="fit the learning rate, at most to lr, so that one step changes predictions on other images by this part "
        "of the difference between two views. Default: 0.05 for ancon-auto with SGD if lr is not given, else no fit. "
        "With two views of ancon-auto 1.34 times the value counts, without batch-norm a third",
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
