"""The default: self-training from two views, by batch-norm statistics of source and target."""

from typing import ClassVar

from tllib_ancon.self_training.method import Method
from tllib_ancon.self_training.pseudo_label import SelfTraining
from tllib_ancon.self_training.registry import register


class WithAutoTraining(Method):
    """Base of methods with the training of ``auto``: on two views of all images, to the last epoch, by mixed batch-norm
    statistics, see :func:`~tllib_ancon.models.batch_norm.agreement`."""

    training_defaults: ClassVar = {"criterion": "last", "batch_norm": "mixed", "views": 2}


@register("auto")
class _Auto(WithAutoTraining, SelfTraining):
    """Self-training from two views, by batch-norm statistics of source and target. Not in the paper; see
    ``benchmarks/default.md``."""
