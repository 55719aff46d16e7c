"""The trained model of a stage: how it is passed, called and copied, its head, and its batch-norm statistics."""

from tllib_ancon.models.foundation import CosineHead

__all__ = ["CosineHead"]
