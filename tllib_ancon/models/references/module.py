"""A network that the caller passes: it adapts as a copy, and predicts itself."""

from torch import nn

from tllib_ancon.models.checkpoints import sha256_of_tensors
from tllib_ancon.models.copies import copy_of, unwrapped
from tllib_ancon.models.references.reference import ModelRef, Request
from tllib_ancon.runtime.types import Options, Show, silently


class Module(ModelRef):
    """A caller's module."""

    @classmethod
    def recognise(cls, request: Request) -> ModelRef | None:
        if request.module is None or request.checkpoint is not None:
            return None
        return cls(module=request.module, names=request.names)

    def network(self, settings: Options, show: Show = silently) -> nn.Module:
        return copy_of(self.callers_module).float()

    def digest(self) -> str:
        return sha256_of_tensors(unwrapped(self.callers_module).state_dict())

    def describe(self) -> str:
        return type(unwrapped(self.callers_module)).__qualname__

    @property
    def callers_module(self) -> nn.Module:
        assert self.module is not None
        return self.module
