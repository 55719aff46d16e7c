"""Running an unmodified example script of TLLib."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tllib_ancon.errors import UserError
from tllib_ancon.toolkit.binding import INSTALL, is_installed
from tllib_ancon.toolkit.compat import RUNNING_SCRIPT, enable


@dataclass(frozen=True)
class ScriptRun:
    """What became of a script.

    Attributes:
        exit_status: as the shell would see it; a failed download is 1, where TLLib's scripts exit with 0
        arguments: what the script's parser made of its arguments, with its defaults; None before that
        log_directory: the script's ``--log`` as an absolute path, which holds ``checkpoints/``; None without
        failure: why the script failed, in one sentence; None if it did not
    """

    exit_status: int
    arguments: argparse.Namespace | None
    log_directory: Path | None
    failure: str | None


def run_script(path: str | Path, arguments: Sequence[str]) -> ScriptRun:
    """Run a Python file as ``python PATH ARGUMENTS`` would, in this process and with TLLib made to work.

    **This runs the code of the named file**, with all it does; it says so on stderr. The file need not be
    changed, and the working directory may be any. Afterwards ``sys.argv``, ``sys.path``, the standard streams
    and the modules that lie beside the script are as before.

    What differs from ``python PATH``:

    - the shims of :mod:`~tllib_ancon.toolkit.compat`, here and in spawned data-loader workers
    - ``tllib`` is found in the checkout that holds the script, unless it is installed
    - timm's vision transformers return the class token under ``--no-pool``, as TLLib expects
    - a failed download is a failure

    Args:
        path: e.g. ``Transfer-Learning-Library/examples/domain_adaptation/image_classification/cdan.py``
        arguments: the script's own

    Raises:
        UserError: no such Python file
    """
    path = Path(path).resolve()
    if path.suffix != ".py" or not path.is_file():
        raise UserError(f"{path} is not a Python file; give the path of a script, e.g. .../cdan.py")
    print(f"tllib-ancon: running the Python file {path}", file=sys.stderr)
    enable()
    with ExitStack() as stack:
        stack.enter_context(_as_main_script(path, arguments))
        stack.enter_context(_class_token())
        parsed = stack.enter_context(_parsed_arguments())
        exit_status, failure = _run()
    seen = parsed[0] if parsed else None
    log = getattr(seen, "log", None)
    return ScriptRun(exit_status, seen, None if log is None else Path(log).resolve(), failure)


def _run() -> tuple[int, str | None]:
    """Exit status, and the reason if it is not 0."""
    try:
        runpy.run_module(RUNNING_SCRIPT, run_name="__main__", alter_sys=True)
    except SystemExit as error:
        return _exit_status(error)
    except Exception as error:
        traceback.print_exc()
        return 1, _explain(error)
    return 0, None


def _exit_status(error: SystemExit) -> tuple[int, str | None]:
    download = _failed_download(error.__traceback__)
    if download is not None:
        failure = f"TLLib could not download {download} ({error.__context__}); put it there yourself"
        print(failure, file=sys.stderr)
        return 1, failure
    if error.code is None or error.code == 0:
        return 0, None
    if isinstance(error.code, int):
        return error.code & 0xFF, f"the script exited with status {error.code & 0xFF}"
    print(error.code, file=sys.stderr)
    return 1, str(error.code)


def _failed_download(trace: TracebackType | None) -> str | None:
    """The folder that TLLib's ``download`` exits about, with status 0."""
    while trace is not None:
        code, values = trace.tb_frame.f_code, trace.tb_frame.f_locals
        if code.co_name == "download" and code.co_filename.endswith(os.path.join("datasets", "_util.py")):
            return os.path.join(values["root"], values["file_name"])
        trace = trace.tb_next
    return None


def _explain(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "tllib":
        return f"the script needs tllib. Install it: {INSTALL['tllib']}"
    if isinstance(error, FileNotFoundError) and Path(error.filename or "").name == "best.pth":
        return "the script saved no best.pth: no epoch had an accuracy above 0 on the target"
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


@contextmanager
def _as_main_script(path: Path, arguments: Sequence[str]) -> Iterator[None]:
    """The interpreter's state of ``python PATH ARGUMENTS``."""
    argv, search, streams = sys.argv, list(sys.path), (sys.stdout, sys.stderr)
    backend = os.environ.get("MPLBACKEND")
    siblings = {file.stem for file in path.parent.glob("[!_]*.py")}
    hidden = _take_modules(siblings)
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.parent))
    sys.path.extend(_checkout(path))
    os.environ["MPLBACKEND"] = "Agg"
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, search
        _close_loggers(streams)
        _take_modules(siblings)
        sys.modules.update(hidden)
        os.environ.pop("MPLBACKEND", None)
        if backend is not None:
            os.environ["MPLBACKEND"] = backend


def _checkout(path: Path) -> list[str]:
    """The repository that the script is part of, if ``tllib`` has to be found there."""
    if is_installed("tllib"):
        return []
    return [str(folder) for folder in path.parents if (folder / "tllib" / "__init__.py").is_file()]


def _take_modules(names: set[str]) -> dict[str, Any]:
    """Modules that lie beside a script are its own, e.g. ``utils``: take them out of the interpreter."""
    taken = [name for name in sys.modules if name.partition(".")[0] in names]
    return {name: sys.modules.pop(name) for name in taken}


def _close_loggers(streams: tuple[Any, Any]) -> None:
    """TLLib's scripts leave their logger open after ``--phase test`` and after an error."""
    loggers = {sys.stdout, sys.stderr} - set(streams)
    sys.stdout, sys.stderr = streams
    for logger in loggers:
        if type(logger).__module__.startswith(("tllib", "tllib_ancon")):
            logger.close()


@contextmanager
def _parsed_arguments() -> Iterator[list[argparse.Namespace]]:
    """Records what argument parsers return; a script changes its namespace later on."""
    parsed: list[argparse.Namespace] = []
    original = argparse.ArgumentParser.parse_args

    def parse_args(parser: argparse.ArgumentParser, *args: Any, **options: Any) -> argparse.Namespace:
        namespace = original(parser, *args, **options)
        parsed.append(argparse.Namespace(**vars(namespace)))
        return namespace

    argparse.ArgumentParser.parse_args = parse_args
    try:
        yield parsed
    finally:
        argparse.ArgumentParser.parse_args = original


@contextmanager
def _class_token() -> Iterator[None]:
    """TLLib asks timm for no pooling and expects the class token; today's timm returns every token."""
    from timm.models.vision_transformer import VisionTransformer

    original = VisionTransformer.reset_classifier

    def reset_classifier(model: VisionTransformer, num_classes: int, global_pool: str | None = None) -> None:
        original(model, num_classes, global_pool or None)

    VisionTransformer.reset_classifier = reset_classifier
    try:
        yield
    finally:
        VisionTransformer.reset_classifier = original
