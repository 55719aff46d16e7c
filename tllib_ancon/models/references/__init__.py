"""What a user may pass as a model. Each kind is a file of this folder and a class of :data:`KINDS`."""

from __future__ import annotations

from tllib_ancon.models.references.hub import Hub
from tllib_ancon.models.references.module import Module
from tllib_ancon.models.references.reference import Model, ModelRef, Request
from tllib_ancon.models.references.run import Run
from tllib_ancon.models.references.weights_file import WeightsFile
from tllib_ancon.models.references.zoo import Zoo
from tllib_ancon.runtime.errors import UserError, named

__all__ = ["Model", "ModelRef", "Request", "refer"]

KINDS: tuple[type[ModelRef], ...] = (Module, Hub, Zoo, Run, WeightsFile)
"""The kinds of references. The first that recognises a request takes it."""


def refer(request: Request) -> ModelRef:
    """The trained model that a user names or passes."""
    for kind in KINDS:
        reference = kind.recognise(request)
        if reference is not None:
            return reference
    raise UserError(
        f"no model to start from: pass {named('checkpoint')}, or an {named('arch')} that begins with hf: or open_clip:"
    )
