"""The algorithm, in pure torch: one file per idea of the paper."""

from tllib_ancon.self_training import methods
from tllib_ancon.self_training.aad import AttractingDispersing
from tllib_ancon.self_training.anchored import AnchoredConfidence
from tllib_ancon.self_training.elr import EarlyLearningRegularization
from tllib_ancon.self_training.ensemble import TemporalEnsemble
from tllib_ancon.self_training.gce import generalized_cross_entropy
from tllib_ancon.self_training.nrc import NeighborhoodReciprocity
from tllib_ancon.self_training.pseudo_label import OneHotPseudoLabel, cross_entropy
from tllib_ancon.self_training.shot import CentroidPseudoLabels, information_maximization

__all__ = [
    "AnchoredConfidence",
    "AttractingDispersing",
    "CentroidPseudoLabels",
    "EarlyLearningRegularization",
    "NeighborhoodReciprocity",
    "OneHotPseudoLabel",
    "TemporalEnsemble",
    "cross_entropy",
    "generalized_cross_entropy",
    "information_maximization",
    "methods",
]
