"""The default: self-training that keeps what the source model knows of batch-norm, at a fitted rate."""

from typing import ClassVar

from tllib_ancon.self_training.method import Method, option
from tllib_ancon.self_training.pseudo_label import SelfTraining
from tllib_ancon.self_training.registry import register


class WithAutoTraining(Method):
    """Base of methods with the training of ``auto``: mixed batch-norm statistics, two views, and a fitted rate."""

    training_defaults: ClassVar = {"criterion": "last", "batch_norm": "mixed", "views": 2, "step_change": 0.05}

    step_change: float | None = option(
        None,
        gt=0,
        lt=1,
        help="fit the learning rate, at most to lr, so that one step changes predictions on other images by this part "
        "of the difference between two views. Default: 0.05 with SGD if lr is not given, else no fit. "
        "Where no batch-norm follows the target, a third of it counts",
    )


@register("auto")
class _Auto(WithAutoTraining, SelfTraining):
    """Self-training from two views, with batch-norm statistics mixed by agreement, at a fitted rate. Not in the paper;
    see ``benchmarks/default.md``."""
