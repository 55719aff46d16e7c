"""``tllib`` 0.4 and ``dalib`` 0.2, unmodified, on today's torch, torchvision, numpy and Python.

:func:`enable` only installs an import hook; it imports nothing heavy. Each shim below is applied when the
module that needs it is really imported, does nothing where the name still exists, and may be applied twice.
"""

from __future__ import annotations

import builtins
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, spec_from_loader
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

INSTALL = {
    "tllib": 'pip install --no-deps "git+https://github.com/thuml/Transfer-Learning-Library@'
    'c4aa59eb565650a552b809411601d0589efbbfe4"',
    "dalib": "pip install 'tllib-ancon[tllib]'",
}

RUNNING_SCRIPT = "tllib_ancon.toolkit.running_script"
"""Module name of the script that :mod:`~tllib_ancon.scripts.running` runs: the file ``sys.argv[0]``."""


Extensions = Mapping[str, Callable[[ModuleType], None]]


def enable(extensions: Extensions = MappingProxyType({})) -> None:
    """Make ``import tllib`` and ``import dalib`` work from now on, also in spawned data-loader workers. Call it before
    they are imported.

    ``import tllib_ancon.toolkit`` does this by itself. Installing it twice is harmless.

    Args:
        extensions (dict): name of a module -> function that is called with it once it is imported
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    for name, extend in extensions.items():
        if name not in _extensions and name in sys.modules:
            extend(sys.modules[name])
        _extensions[name] = extend


def is_installed(name: str) -> bool:
    """Whether ``import name`` finds a package; a folder of that name without ``__init__.py`` is none."""
    spec = find_spec(name)
    return spec is not None and spec.origin is not None


@contextmanager
def _names_back(module: ModuleType) -> Iterator[None]:
    """What torch, torchvision and numpy have made private, replaced or dropped since; here and in new processes."""
    from multiprocessing import context
    from multiprocessing.reduction import ForkingPickler

    import numpy
    from torch.hub import load_state_dict_from_url
    from torch.utils.data import dataset
    from torchvision import models
    from torchvision.models import resnet

    if not hasattr(dataset, "T_co"):  # tllib's ImageList
        dataset.T_co = TypeVar("T_co", covariant=True)
    if not hasattr(resnet, "model_urls"):  # both ResNets; TLLib's benchmarks used V1
        names = [name for name in resnet.__all__ if name.islower()]
        resnet.model_urls = {name: models.get_model_weights(name).IMAGENET1K_V1.url for name in names}
    utilities = "torchvision.models.utils"
    if utilities not in sys.modules and find_spec(utilities) is None:  # dalib's ResNet and tllib's DeepLab
        stand_in = ModuleType(utilities)
        stand_in.load_state_dict_from_url = load_state_dict_from_url
        models.utils = stand_in
        sys.modules[utilities] = stand_in
    for name in ("float", "int", "str"):  # gradient reversal, other tasks
        vars(numpy).setdefault(name, getattr(builtins, name))
    for kind in (context.Process, context.SpawnProcess, context.ForkServerProcess):
        # a spawned or fork-served process has no shims: unpickling it gives it them first of all
        ForkingPickler.register(kind, _reduced)
    yield


def _reduced(process: BaseProcess) -> tuple[Any, ...]:
    return _blank_process, (type(process), _extensions), process.__dict__


def _blank_process(kind: type[BaseProcess], extensions: Extensions) -> BaseProcess:
    enable(extensions)
    return kind.__new__(kind)


@contextmanager
def _numba(module: ModuleType) -> Iterator[None]:
    """LogME imports ``numba.njit``, so every tllib import does; where that fails it runs uncompiled."""
    try:
        import numba  # noqa: F401
    except ImportError:  # not installed, or it fails with a newer numpy
        stand_in = ModuleType("numba")
        stand_in.njit = lambda *args, **options: args[0] if args and callable(args[0]) else lambda function: function
        sys.modules["numba"] = stand_in
        try:
            yield
        finally:
            del sys.modules["numba"]
    else:
        yield


def _mend_logger(module: ModuleType) -> None:
    """TLLib's logger closes the terminal, so that Python exits with status 120: close the log file alone."""
    original = module.TextLogger

    class TextLogger(original):
        def __init__(self, filename: str, stream: Any = None):
            super().__init__(filename, stream or sys.stdout)
            self.replaced = {"stdout": sys.stdout, "stderr": sys.stderr}

        def close(self) -> None:
            for name, stream in self.replaced.items():
                if getattr(sys, name) is self:
                    setattr(sys, name, stream)
            self.log.close()

    module.TextLogger = TextLogger


_extensions: dict[str, Callable[[ModuleType], None]] = {"tllib.utils.logger": _mend_logger}
"""Module -> what is called with it after its execution."""

_AROUND: dict[str, Callable[[ModuleType], AbstractContextManager[None]]] = {
    "tllib": _names_back,
    "tllib.ranking.logme": _numba,
    "dalib": _names_back,
}
"""Module -> what happens around its execution."""


class _Finder:
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name == RUNNING_SCRIPT:
            return spec_from_loader(name, SourceFileLoader(name, sys.argv[0]))
        if name.partition(".")[0] not in ("tllib", "dalib"):
            return None
        specs = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, specs), None)
        if spec and spec.loader:
            spec.loader.exec_module = partial(_execute, spec.loader.exec_module)
        return spec


def _execute(run: Callable[[ModuleType], None], module: ModuleType) -> None:
    with warnings.catch_warnings(), _AROUND.get(module.__name__, nullcontext)(module):
        warnings.filterwarnings("ignore", ".*invalid escape sequence")  # in TLLib's docstrings
        warnings.filterwarnings("ignore", ".*no QP solver", UserWarning)  # which only dalib's DAN misses
        run(module)
    if module.__name__ in _extensions:
        _extensions[module.__name__](module)
