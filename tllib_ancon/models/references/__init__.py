"""What a user may pass as a model. Each kind is a file of this folder."""

from __future__ import annotations

from torch import nn

from tllib_ancon.models.references.hub import LIBRARIES, load_from_hub
from tllib_ancon.models.references.reference import Model, ModelRef
from tllib_ancon.models.references.run import run_or_file
from tllib_ancon.models.references.zoo import IMAGENET, Zoo
from tllib_ancon.runtime.errors import UserError, named

__all__ = ["BY_NAME", "Model", "ModelRef", "refer"]

BY_NAME = dict.fromkeys(LIBRARIES, load_from_hub)
"""Prefix of a name, such as ``hf:NAME`` -> what loads such a model."""


def refer(
    module: nn.Module | None = None,
    checkpoint: str | None = None,
    arch: str | None = None,
    names: list[str] | None = None,
    allow_download: bool = False,
) -> ModelRef:
    """The trained model that a user names or passes.

    Args:
        module: the network that is passed, or that a function of the user returns
        checkpoint: a file, a run directory or ``imagenet``
        arch: name of a network
        names: names of the classes, in the order of the labels
        allow_download: whether a hub may be asked for ``arch``
    """
    if checkpoint == IMAGENET:
        return Zoo(IMAGENET, names=names)
    if checkpoint is not None:
        return run_or_file(checkpoint, module, names)
    if module is not None:
        return ModelRef(module=module, names=names)
    prefix = str(arch).partition(":")[0]
    if prefix not in BY_NAME:
        raise UserError(
            f"no model to start from: pass {named('checkpoint')}, or an {named('arch')} as hf:NAME or open_clip:NAME"
        )
    return BY_NAME[prefix](str(arch), names, allow_download)
