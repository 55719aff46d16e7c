"""``tllib-ancon script``: run an unmodified example script of TLLib, and adapt the model that it leaves."""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tllib_ancon.cli import stages
from tllib_ancon.cli.flags import checked
from tllib_ancon.cli.parser import Parser, parsed
from tllib_ancon.config import AdaptConfig
from tllib_ancon.errors import UserError

STARTS = ("latest", "best")
MARK, SECOND, RESULT = "script.json", "adapt", "result.json"
"""In the script's log directory: the mark of a finished first stage, the folder of the adaptation, and there the file
that ends it."""

NEEDED = ("root", "data", "target", "arch", "log")
"""Arguments that an image classification script of TLLib has, and that the adaptation takes from it."""


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "script",
        metavar="PATH",
        help="the script, such as Transfer-Learning-Library/examples/domain_adaptation/image_classification/cdan.py",
    )
    parser.add_argument(
        "arguments",
        nargs=argparse.REMAINDER,
        metavar="...",
        help="the script's own arguments; then, to adapt, --method METHOD and flags of the adaptation",
    )
    parser.usage = "%(prog)s PATH [the script's own arguments] [--method METHOD [flags of the adaptation]]"
    parser.epilog = (
        "The adaptation takes what its flags do not say from the script's arguments. tllib-ancon script PATH --method "
        "METHOD --help tells the flags of the adaptation that people set first, --help-all every one."
    )


def run(args: argparse.Namespace) -> int:
    own, ours = _split(args.arguments)
    if not ours:
        return _run_script(args.script, own)[0]
    second = parsed(second_stage_parser(), ours)
    with checked(stages.second_stage_flags()):
        AdaptConfig(**_given(second))
    log = _log_of(args.script, own)
    trained = None if log is None else _finished_stage(log, args.script, own, second)
    if trained is None:
        if log is not None and not second.overwrite:
            _refuse_used_log(log)
        status, trained = _run_script(args.script, own)
        if status != 0 or trained is None:
            return status
        _remember(trained, args.script, own, second.overwrite)
    _adapt(second, trained)
    return 0


@dataclass(frozen=True)
class _Trained:
    """What a script left: its log directory, and its own arguments with their defaults."""

    log: Path | None
    arguments: Mapping[str, Any]


def _run_script(script: str, words: list[str]) -> tuple[int, _Trained | None]:
    from tllib_ancon.toolkit.script import run_script

    outcome = run_script(script, words)
    if outcome.exit_status != 0:
        print(f"tllib-ancon: {script} failed: {outcome.failure}", file=sys.stderr)
        return outcome.exit_status, None
    return 0, _Trained(outcome.log_directory, vars(outcome.arguments or argparse.Namespace()))


def _remember(trained: _Trained, script: str, words: list[str], overwrite: bool) -> None:
    """Mark the first stage as finished, with the checksums of its checkpoints; an earlier adaptation is not of them."""
    from tllib_ancon.training.files import sha256, write_whole

    if trained.log is None:
        return
    checkpoints = sorted((trained.log / "checkpoints").glob("*.pth"))
    mark = {
        "script": str(Path(script).resolve()),
        "words": words,
        "overwrite": overwrite,
        "sha256": {path.name: sha256(path) for path in checkpoints},
        "arguments": {name: value for name, value in trained.arguments.items() if _is_plain(value)},
    }
    (trained.log / SECOND / RESULT).unlink(missing_ok=True)
    content = (json.dumps(mark, indent=2) + "\n").encode()
    write_whole(trained.log / MARK, lambda file: file.write(content))


def _finished_stage(log: Path, script: str, words: list[str], second: argparse.Namespace) -> _Trained | None:
    """What the same script with the same arguments left here before, if its checkpoint is still the one it wrote; with
    ``--overwrite`` only if the same command did that and was cut off in the adaptation."""
    from tllib_ancon.training.files import sha256

    try:
        mark = json.loads((log / MARK).read_text())
        known = mark["script"] == str(Path(script).resolve()) and mark["words"] == words
        digest = mark["sha256"].get(f"{second.start}.pth")
        arguments = dict(mark["arguments"])
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return None
    if second.overwrite and (not mark.get("overwrite") or (log / SECOND / RESULT).exists()):
        return None
    checkpoint = log / "checkpoints" / f"{second.start}.pth"
    if not known or not checkpoint.is_file() or sha256(checkpoint) != digest:
        return None
    print(f"tllib-ancon: {script} has run here before; going on from {checkpoint}", file=sys.stderr)
    return _Trained(log.resolve(), arguments)


def _refuse_used_log(log: Path) -> None:
    """Refuse before the script trains a log directory whose adaptation is of another command.

    Raises:
        UserError: it holds an adaptation
    """
    if (log / SECOND / "config.json").exists():
        raise UserError(
            f"{log / SECOND} holds an adaptation of another command, or of a script whose checkpoint has changed; "
            "choose another --log, or pass --overwrite after --method to run both stages anew"
        )


def _log_of(script: str, words: list[str]) -> Path | None:
    """The script's log directory before its own parser has run: from its words, else the default in its text."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--log")
    log = parser.parse_known_args(words)[0].log or _default_log(script)
    return None if log is None else Path(log)


def _default_log(script: str) -> str | None:
    """The default in ``parser.add_argument("--log", default=...)``."""
    try:
        calls = [node for node in ast.walk(ast.parse(Path(script).read_bytes())) if isinstance(node, ast.Call)]
    except (OSError, SyntaxError, ValueError):
        return None
    for call in calls:
        words = [word.value for word in call.args if isinstance(word, ast.Constant)]
        defaults = [option.value for option in call.keywords if option.arg == "default"]
        if "--log" in words and defaults and isinstance(defaults[0], ast.Constant):
            return str(defaults[0].value)
    return None


def _is_plain(value: Any) -> bool:
    items = value if isinstance(value, list | tuple) else [value]
    return all(item is None or isinstance(item, str | int | float) for item in items)


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """The script's arguments, and ours: from ``--method`` on."""
    ours = (number for number, word in enumerate(words) if word.partition("=")[0] == "--method")
    border = next(ours, len(words))
    return words[:border], words[border:]


def second_stage_parser() -> Parser:
    """The parser of what follows the script's own arguments, from ``--method`` on."""
    parser = Parser(
        prog="tllib-ancon script PATH ...",
        usage="%(prog)s --method METHOD [flags]",
        description="Flags of the adaptation after a script; all else it takes from the script's arguments.",
    )
    stages.second_stage_flags().add(parser)
    group = parser.add_argument_group("run")
    group.add_argument(
        "--start",
        default="latest",
        choices=STARTS,
        help="the checkpoint of the script to adapt; best was chosen on target labels (default: latest)",
    )
    group.add_argument(
        "--overwrite",
        action="store_true",
        help="replace both stages of an earlier run; if they are cut off, the same command continues them "
        "(default: off)",
    )
    group.add_argument("--quiet", action="store_true", help="show only errors (default: off)")
    group.add_argument(
        "--verbose", action="store_true", help="show a line of progress every --print-freq steps (default: off)"
    )
    return parser


def _given(second: argparse.Namespace) -> dict[str, Any]:
    own = {name: getattr(second, name) for name in ("overwrite", "quiet", "verbose", "start")}
    return {**stages.second_stage_flags().given(second), **own}


def _adapt(second: argparse.Namespace, trained: _Trained) -> None:
    """Adapt from the checkpoint in the script's log directory, into its folder ``adapt``."""
    from tllib_ancon.training.adapt import adapt
    from tllib_ancon.training.progress import result_summary

    log, script = trained.log, trained.arguments
    missing = [f"--{name}" for name in NEEDED if script.get(name) is None]
    if missing or log is None:
        raise UserError(f"the script has no {', '.join(missing)}; --method is for TLLib's image classification scripts")
    checkpoint = log / "checkpoints" / f"{second.start}.pth"
    if not checkpoint.is_file():
        raise UserError(f"the script left no {checkpoint}; did it train (--phase train)?")
    if second.start == "best":
        print(f"tllib-ancon: warning: {checkpoint} was chosen on target labels by the script", file=sys.stderr)
    with checked(stages.second_stage_flags()):
        settings = {**stages.shared_with_script(script), **_given(second)}
        config = AdaptConfig(**settings, checkpoint=str(checkpoint), log=str(log / SECOND))
        print(result_summary(adapt(config=config).summary))
