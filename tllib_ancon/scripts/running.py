"""Running an unmodified example script of TLLib."""

import argparse
import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest.mock import patch

from tllib_ancon.runtime.errors import UserError, one_line
from tllib_ancon.runtime.text import say
from tllib_ancon.scripts import enable
from tllib_ancon.toolkit.compat import INSTALL, RUNNING_SCRIPT, is_installed


@dataclass(frozen=True)
class ScriptRun:
    """What became of a script."""

    exit_status: int  # as the shell would see it; a failed download is 1, where TLLib's scripts exit with 0
    arguments: argparse.Namespace | None  # what the script's parser made of them, with defaults; None before that
    failure: str | None  # why the script failed, in one sentence
    class_names: tuple[str, ...] = ()  # in the order of the labels; empty where the script has none


def run_script(path: str | Path, arguments: Sequence[str]) -> ScriptRun:
    """Run a Python file as ``python PATH ARGUMENTS`` would, in this process and with TLLib made to work. **This runs
    the code of the named file.** Streams, paths and modules are as before afterwards.

    Other than with Python, ``tllib`` is found in the script's checkout, and a failed download is a failure. timm's
    transformers return the class token under ``--no-pool``."""
    script = Path(os.path.realpath(path))
    if script.suffix != ".py" or not script.is_file():
        raise UserError(f"{script} is not a Python file", "give the path of a script, e.g. .../cdan.py")
    say(f"tllib-ancon: running the Python file {script}", file=sys.stderr)
    enable()
    with _as_main_script(script, arguments), _class_token(), _parsed_arguments() as parsed:
        exit_status, failure = _run()
    if not parsed:
        return ScriptRun(exit_status, None, failure)
    namespace, first = parsed[0]
    return ScriptRun(exit_status, first, failure, tuple(getattr(namespace, "class_names", None) or ()))


def _run() -> tuple[int, str | None]:
    try:
        runpy.run_module(RUNNING_SCRIPT, run_name="__main__", alter_sys=True)
    except SystemExit as error:
        download = _failed_download(error.__traceback__)
        if download is None and isinstance(error.code, int | None):
            return _ended(error.code or 0)
        failure = str(error.code)
        if download is not None:
            failure = f"TLLib could not download {download} ({error.__context__}); put it there yourself"
        print(failure, file=sys.stderr)
        return 1, failure
    except UserError:
        raise
    except Exception as error:
        traceback.print_exc()
        return 1, _explain(error)
    return 0, None


def _ended(code: int) -> tuple[int, str | None]:
    status = code & 0xFF
    if status == 0:
        return 0, None
    return status, f"the script exited with status {status}"


def _failed_download(trace: TracebackType | None) -> str | None:
    """The folder that TLLib's ``download`` exits about, with status 0."""
    for frame, _ in traceback.walk_tb(trace):
        code = frame.f_code
        if code.co_name == "download" and code.co_filename.endswith(os.path.join("datasets", "_util.py")):
            return os.path.join(frame.f_locals["root"], frame.f_locals["file_name"])
    return None


def _explain(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "tllib":
        return f"the script needs tllib. Install it: {INSTALL['tllib']}"
    return f"{type(error).__name__}: {one_line(error)}"


@contextmanager
def _as_main_script(path: Path, arguments: Sequence[str]) -> Iterator[None]:
    """The interpreter's state of ``python PATH ARGUMENTS``."""
    stdout = sys.stdout
    stderr = sys.stderr
    siblings = {file.stem for file in path.parent.glob("[!_]*.py")}
    hidden = _take_modules(siblings)
    search = [str(path.parent), *sys.path]
    if not is_installed("tllib"):
        search += [str(folder) for folder in path.parents if (folder / "tllib" / "__init__.py").is_file()]
    argv = [str(path), *arguments]
    try:
        with (
            patch.object(sys, "argv", argv),
            patch.object(sys, "path", search),
            patch.dict(os.environ, MPLBACKEND="Agg"),
        ):
            yield
    finally:
        loggers = {sys.stdout, sys.stderr} - {stdout, stderr}
        sys.stdout = stdout
        sys.stderr = stderr
        for logger in loggers:  # TLLib's scripts leave it open after --phase test and after an error
            if type(logger).__module__.startswith(("tllib", "tllib_ancon")):
                logger.close()
        _take_modules(siblings)
        sys.modules.update(hidden)


def _take_modules(names: set[str]) -> dict[str, Any]:
    modules = [name for name in sys.modules if name.partition(".")[0] in names]
    return {name: sys.modules.pop(name) for name in modules}


@contextmanager
def _parsed_arguments() -> Iterator[list[tuple[argparse.Namespace, argparse.Namespace]]]:
    """Records what argument parsers return, and a copy of it; a script changes its namespace later on."""
    parsed: list[tuple[argparse.Namespace, argparse.Namespace]] = []
    original = argparse.ArgumentParser.parse_args

    def parse_args(parser: argparse.ArgumentParser, *args: Any, **options: Any) -> argparse.Namespace:
        namespace = original(parser, *args, **options)
        parsed.append((namespace, argparse.Namespace(**vars(namespace))))
        return namespace

    with patch.object(argparse.ArgumentParser, "parse_args", parse_args):
        yield parsed


@contextmanager
def _class_token() -> Iterator[None]:
    """TLLib asks timm for no pooling and expects the class token; today's timm returns every token."""
    from timm.models.vision_transformer import VisionTransformer

    original = VisionTransformer.reset_classifier

    def reset_classifier(model: VisionTransformer, num_classes: int, global_pool: str | None = None) -> None:
        original(model, num_classes, global_pool or None)

    with patch.object(VisionTransformer, "reset_classifier", reset_classifier):
        yield
