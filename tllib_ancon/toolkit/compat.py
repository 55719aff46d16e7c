"""``tllib`` 0.4 and ``dalib`` 0.2, unmodified, on today's torch, torchvision, numpy and Python.

:func:`enable` only installs an import hook; it imports nothing heavy. Each shim below is applied when the
module that needs it is really imported, does nothing where the name still exists, and may be applied twice.
"""

from __future__ import annotations

import builtins
import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, spec_from_loader
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

ALIAS = "tllib.self_training.ancon"
"""Where a TLLib user looks for the losses of this package."""

RUNNING_SCRIPT = "tllib_ancon.toolkit.running_script"
"""Module name of the script that :mod:`~tllib_ancon.toolkit.script` runs: the file ``sys.argv[0]``."""


def enable() -> None:
    """Make ``import tllib`` and ``import dalib`` work from now on, also in spawned data-loader workers.

    ``import tllib_ancon.toolkit`` does this by itself. Installing it twice is harmless.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    for name in _AROUND.keys() & sys.modules.keys():
        with _AROUND[name](sys.modules[name]):
            pass


# The shims


def _type_variable() -> None:
    """tllib's ImageList imports ``T_co``, which torch made private."""
    import torch.utils.data.dataset as dataset

    if not hasattr(dataset, "T_co"):
        dataset.T_co = TypeVar("T_co", covariant=True)


def _model_urls() -> None:
    """Both ResNets import ``model_urls``, which torchvision replaced; TLLib's benchmarks used V1."""
    from torchvision import models
    from torchvision.models import resnet

    if not hasattr(resnet, "model_urls"):
        names = [name for name in resnet.__all__ if name.islower()]
        resnet.model_urls = {name: models.get_model_weights(name).IMAGENET1K_V1.url for name in names}


def _model_utilities() -> None:
    """dalib's ResNet and tllib's DeepLab import ``torchvision.models.utils``, now a part of torch.hub."""
    name = "torchvision.models.utils"
    if name in sys.modules or find_spec(name) is not None:
        return
    from torch.hub import load_state_dict_from_url
    from torchvision import models

    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, loader=None)
    module.load_state_dict_from_url = load_state_dict_from_url
    sys.modules[name] = models.utils = module


def _numpy_aliases() -> None:
    """Gradient reversal calls ``np.float``, other tasks ``np.int`` and ``np.str``; numpy dropped them."""
    import numpy

    for name in ("float", "int", "str"):
        if name not in vars(numpy):
            setattr(numpy, name, getattr(builtins, name))


def _workers() -> None:
    """A spawned or fork-served process has no shims: unpickling it gives it them first of all."""
    from multiprocessing import context
    from multiprocessing.reduction import ForkingPickler

    for name in ("Process", "SpawnProcess", "ForkServerProcess"):
        if hasattr(context, name):
            ForkingPickler.register(getattr(context, name), _reduce_process)


def _reduce_process(process: BaseProcess) -> tuple[Any, ...]:
    return _blank_process, (type(process),), process.__dict__


def _blank_process(kind: type[BaseProcess]) -> BaseProcess:
    enable()
    return kind.__new__(kind)


@contextmanager
def _names_back(module: ModuleType) -> Iterator[None]:
    for shim in (_type_variable, _model_urls, _model_utilities, _numpy_aliases, _workers):
        shim()
    yield


@contextmanager
def _quietly() -> Iterator[None]:
    r"""TLLib's docstrings hold ``\m`` (an error under ``-W error``); only dalib's DAN misses a solver."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*invalid escape sequence")
        warnings.filterwarnings("ignore", ".*no QP solver", UserWarning)
        yield


@contextmanager
def _numba(module: ModuleType) -> Iterator[None]:
    """LogME imports ``numba.njit``, so every tllib import does; where that fails it runs uncompiled."""
    try:
        import numba  # noqa: F401
    except ImportError:  # not installed, or it refuses a newer numpy
        stand_in = ModuleType("numba")
        stand_in.njit = lambda *args, **options: args[0] if args and callable(args[0]) else lambda function: function
        sys.modules["numba"] = stand_in
        try:
            yield
        finally:
            del sys.modules["numba"]
    else:
        yield


@contextmanager
def _logger(module: ModuleType) -> Iterator[None]:
    """TLLib's logger closes the terminal, so that Python exits with status 120: close the log file alone."""
    yield
    original = module.TextLogger

    class TextLogger(original):
        def __init__(self, filename: str, stream: Any = None):
            super().__init__(filename, stream or sys.stdout)
            self.replaced = sys.stdout, sys.stderr

        def close(self) -> None:
            if sys.stdout is self:
                sys.stdout = self.replaced[0]
            if sys.stderr is self:
                sys.stderr = self.replaced[1]
            self.log.close()

    module.TextLogger = TextLogger


_AROUND: dict[str, Callable[[ModuleType], AbstractContextManager[None]]] = {
    "tllib": _names_back,
    "tllib.ranking.logme": _numba,
    "tllib.utils.logger": _logger,
    "dalib": _names_back,
}
"""Module -> what happens around its execution."""


# The hook


class _Finder:
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name == ALIAS:
            return ModuleSpec(name, _AliasLoader())
        if name == RUNNING_SCRIPT:
            return spec_from_loader(name, SourceFileLoader(name, sys.argv[0]))
        if name.partition(".")[0] not in ("tllib", "dalib"):
            return None
        spec = self._found_by_others(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Around(spec.loader, _AROUND.get(name, nullcontext))
        return spec

    def _found_by_others(self, name: str, path: Any, target: Any) -> ModuleSpec | None:
        others = [finder for finder in sys.meta_path if finder is not self]
        specs = (finder.find_spec(name, path, target) for finder in others)
        return next((spec for spec in specs if spec is not None), None)


class _Around:
    """A module's own loader, with a shim around the module's execution."""

    def __init__(self, loader: Any, around: Callable[[ModuleType], AbstractContextManager[None]]):
        self._loader = loader
        self._around = around

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # before __init__, as in a copy
            raise AttributeError(name)
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        with _quietly(), self._around(module):
            self._loader.exec_module(module)


class _AliasLoader:
    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module("tllib_ancon.self_training")
