"""The algorithm, in pure torch: one file per idea of the paper; importing it registers the built-in methods.

Everything here raises a :class:`~tllib_ancon.UserError` for shapes that do not fit, an index or a parameter out
of range, and an unknown name.
"""

# Help texts and tables list the methods in the order of these imports.
# isort: off
from tllib_ancon.self_training.pseudo_label import cross_entropy
from tllib_ancon.self_training.gce import generalized_cross_entropy
from tllib_ancon.self_training.shot import CentroidPseudoLabels, information_maximization
from tllib_ancon.self_training.nrc import NeighborhoodReciprocity
from tllib_ancon.self_training.aad import AttractingDispersing
from tllib_ancon.self_training.tent import softmax_entropy
from tllib_ancon.self_training.eta import SampleEfficientEntropy
from tllib_ancon.self_training.elr import EarlyLearningRegularization
from tllib_ancon.self_training.anchored import AnchoredConfidence
from tllib_ancon.self_training.adaptive import AdaptiveSmoothing
from tllib_ancon.self_training.ensemble import TemporalEnsemble
# isort: on

__all__ = [
    "AdaptiveSmoothing",
    "AnchoredConfidence",
    "AttractingDispersing",
    "CentroidPseudoLabels",
    "EarlyLearningRegularization",
    "NeighborhoodReciprocity",
    "SampleEfficientEntropy",
    "TemporalEnsemble",
    "cross_entropy",
    "generalized_cross_entropy",
    "information_maximization",
    "softmax_entropy",
]
