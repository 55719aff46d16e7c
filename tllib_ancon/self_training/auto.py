"""The default: self-training by batch-norm statistics of source and target."""

from typing import ClassVar

from tllib_ancon.self_training.method import Method
from tllib_ancon.self_training.pseudo_label import SelfTraining
from tllib_ancon.self_training.registry import register


class WithMixedStatistics(Method):
    """Base of methods with the training of ``auto``: on all images to the last epoch, by mixed batch-norm statistics,
    see :func:`~tllib_ancon.models.batch_norm.agreement`."""

    training_defaults: ClassVar = {"criterion": "last", "batch_norm": "mixed"}


@register("auto")
class _Auto(WithMixedStatistics, SelfTraining):
    """Self-training by batch-norm statistics of source and target. Not in the paper; see ``benchmarks/default.md``."""
