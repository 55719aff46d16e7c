"""Classifiers with features and a head: :func:`load` from a checkpoint, :func:`as_classifier` of any network."""

from tllib_ancon.models.checkpoints import export_state_dict
from tllib_ancon.models.classifier import Classifier, as_classifier
from tllib_ancon.models.foundation import CosineHead
from tllib_ancon.models.loading import load

__all__ = ["Classifier", "CosineHead", "as_classifier", "export_state_dict", "load"]
