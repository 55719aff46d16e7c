"""The default: self-training by batch-norm statistics of source and target."""

from typing import ClassVar

from tllib_ancon.self_training.pseudo_label import SelfTraining
from tllib_ancon.self_training.registry import register

TRAINING = {"criterion": "last", "batch_norm": "mixed"}
"""On all images to the last epoch, by mixed batch-norm statistics: :func:`~tllib_ancon.models.batch_norm.agreement`."""


@register("auto")
class _Auto(SelfTraining):
    """Self-training by batch-norm statistics of source and target. Not in the paper; see ``benchmarks/default.md``."""

    training_defaults: ClassVar = TRAINING
