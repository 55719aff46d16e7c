"""Which parameters an adaptation changes."""

from __future__ import annotations

from torch import nn

from tllib_ancon.errors import UserError, unknown_name
from tllib_ancon.models.classifier import Classifier

ADAPTED_PARAMETERS = ("all", "all-but-head", "norm-affine")
NORMALIZATIONS = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm)


def choose_adapted_parameters(model: Classifier, which: str = "all-but-head") -> None:
    """Let only some parameters of a classifier learn.

    Args:
        model (Classifier): what its owner had frozen learns too, if it is among them
        which (str): ``all-but-head``: SHOT's and AnCon's choice, all if the model's head is not known; ``all``;
            ``norm-affine``: scale and shift of the normalisation layers (Rusak et al., 2022; their released script
            changes all parameters)

    Raises:
        UserError: another name; no parameter is among them
    """
    if which not in ADAPTED_PARAMETERS:
        raise unknown_name("choice of adapted parameters", which, ADAPTED_PARAMETERS)
    model.requires_grad_(which != "norm-affine")
    if which == "all-but-head" and model.head is not None:
        model.head.requires_grad_(False)
    elif which == "norm-affine":
        for module in model.modules():
            if isinstance(module, NORMALIZATIONS):
                module.requires_grad_(True)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UserError(f"the model has no parameter to train with `adapted={which}`; pass another `adapted`")
