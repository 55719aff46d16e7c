"""Methods by name: the registry of ``self_training``, which is imported when it is first used, since it needs torch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tllib_ancon.self_training.registry import *  # noqa: F403


def __getattr__(name: str) -> Any:
    return getattr(import_module("tllib_ancon.self_training.registry"), name)
