"""Methods by name: the registry of :mod:`tllib_ancon.self_training`."""

from tllib_ancon.self_training.registry import *  # noqa: F403
from tllib_ancon.self_training.registry import __all__ as __all__
