"""A network that the caller passes: it adapts as a copy, and predicts itself."""

from torch import nn

from tllib_ancon.models.copies import unwrapped
from tllib_ancon.models.references.reference import ModelRef, Request


class Module(ModelRef):
    """A caller's module."""

    @classmethod
    def recognise(cls, request: Request) -> ModelRef | None:
        if request.module is None or request.checkpoint is not None:
            return None
        return cls(module=request.module, names=request.names)

    def describe(self) -> str:
        assert self.module is not None
        return type(unwrapped(self.module)).__qualname__

    @property
    def callers_module(self) -> nn.Module | None:
        return self.module
