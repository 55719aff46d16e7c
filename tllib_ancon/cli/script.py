"""``tllib-ancon script``: run an unmodified example script of TLLib, and adapt the model that it leaves."""

import argparse
import ast
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tllib_ancon import methods
from tllib_ancon.cli.flags import Flags
from tllib_ancon.cli.parser import Parser
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.data import DataConfig
from tllib_ancon.config.images import ImageConfig
from tllib_ancon.config.model import ModelConfig, StartConfig
from tllib_ancon.config.run import RunConfig
from tllib_ancon.config.settings import settings_of
from tllib_ancon.config.toml import read_file
from tllib_ancon.runs.files import sha256, write_json
from tllib_ancon.runtime.errors import BadSetting
from tllib_ancon.runtime.text import say
from tllib_ancon.runtime.types import Options, Record
from tllib_ancon.scripts.running import ScriptRun, run_script

MARK = "script.json"
"""In the script's log directory: the mark of a finished first stage."""
SECOND = "adapt"
"""In the script's log directory: the folder of the adaptation."""
RESULT = "result.json"
"""In the folder of the adaptation: the file that ends it."""
CLASS_NAMES = "classes.txt"
"""In the script's log directory: names of the classes of a user's own folders, in the order of the labels."""

NEEDED = ("root", "data", "target", "arch", "log")
"""Arguments that an image classification script of TLLib has, and that the adaptation takes from it."""

SIDE = 224
"""Side in pixels of the images of TLLib's scripts, unless they resize with ``res.``."""

OF_THE_SCRIPT = (*NEEDED, "source", *settings_of(StartConfig))
"""Settings of the adaptation that the script's arguments and its checkpoint decide."""


class _Script:
    def add_arguments(self, parser: Parser) -> None:
        example = "Transfer-Learning-Library/examples/domain_adaptation/image_classification/cdan.py"
        parser.add_argument("script", metavar="PATH", help=f"the script, such as {example}")
        parser.add_argument(
            "arguments",
            nargs=argparse.REMAINDER,
            metavar="...",
            help="the script's own arguments; then, to adapt, --method METHOD and flags of the adaptation. A script "
            "that has a --method itself needs -- between the two",
        )
        parser.usage = "%(prog)s PATH [the script's own arguments] [--method METHOD [flags of the adaptation]]"

    def run(self, args: argparse.Namespace) -> int:
        words, adaptation_words = _at_method(args.arguments)
        if not adaptation_words:
            return _run(args.script, words).exit_status
        settings = _adaptation_settings(adaptation_words)
        start = settings.pop("start")
        AdaptConfig(**settings)  # an error before the script runs
        log = _log_directory(args.script, words)
        arguments = None
        if log is not None:
            arguments = _finished_stage(log, args.script, words, start, settings)
        if arguments is None:
            if log is not None and not settings["overwrite"] and (log / SECOND / "config.json").exists():
                raise BadSetting(
                    f"{log / SECOND} holds an adaptation of another command, or of a script whose checkpoint has "
                    "changed",
                    "choose another --log, or pass --overwrite after --method to run both stages again",
                )
            outcome = _run(args.script, words)
            if outcome.exit_status != 0:
                return outcome.exit_status
            arguments = {"log": outcome.log_directory, "class_names": _write_class_names(outcome)}
            if outcome.arguments is not None:
                arguments = {**vars(outcome.arguments), **arguments}
            if outcome.log_directory is not None:
                _remember(outcome.log_directory, args.script, words, arguments, settings["overwrite"])
        _adapt(settings, start, arguments)
        return 0


def _at_method(words: list[str]) -> tuple[list[str], list[str]]:
    """The script's own words and those of the adaptation: what follows ``--``, else the last ``--method`` and what
    follows it."""
    if "--" in words:
        place = words.index("--")
        return words[:place], words[place + 1 :]
    places = [place for place, word in enumerate(words) if word.partition("=")[0] == "--method"]
    if not places:
        return words, []
    return words[: places[-1]], words[places[-1] :]


def _adaptation_settings(words: list[str]) -> Record:
    """The settings of the adaptation, and ``start``: the checkpoint of the script that it adapts."""
    args = second_stage_parser().parsed(words)
    settings: Record = {"overwrite": False}
    if args.config is not None:
        settings |= read_file(args.config)
    settings |= _adaptation_flags().settings_in(args)
    settings["start"] = args.start or settings.get("start", "latest")
    return settings


def _run(script: str, words: list[str]) -> ScriptRun:
    outcome = run_script(script, words)
    if outcome.exit_status != 0:
        say(f"tllib-ancon: {script} failed: {outcome.failure}", file=sys.stderr)
    return outcome


def _remember(log: Path, script: str, words: list[str], arguments: Options, overwrite: bool) -> None:
    """Mark the first stage as finished, with the checksums of its checkpoints; an earlier adaptation is not of them."""
    sums = {path.name: sha256(path) for path in sorted((log / "checkpoints").glob("*.pth"))}
    mark = {
        "script": os.path.realpath(script),
        "words": words,
        "overwrite": overwrite,
        "sha256": sums,
        "arguments": dict(arguments),
    }
    (log / SECOND / RESULT).unlink(missing_ok=True)
    write_json(log / MARK, mark, skipkeys=True, default=lambda value: None)


def _write_class_names(outcome: ScriptRun) -> str | None:
    """A file with the script's order of class folders; networks of timm would have another one."""
    from tllib_ancon.scripts.own_images import FOLDERS

    data = getattr(outcome.arguments, "data", None)
    if data not in FOLDERS or outcome.log_directory is None or not outcome.class_names:
        return None
    file = outcome.log_directory / CLASS_NAMES
    file.write_text("".join(f"{name}\n" for name in outcome.class_names), encoding="utf-8")
    return str(file)


def _finished_stage(log: Path, script: str, words: list[str], start: str, settings: Options) -> Options | None:
    """Arguments of an earlier run of the same command line whose checkpoint is unchanged, else None."""
    checkpoint = log / "checkpoints" / f"{start}.pth"
    try:
        mark = json.loads((log / MARK).read_bytes())
        is_same_command = mark["script"] == os.path.realpath(script) and mark["words"] == words
        digest = mark["sha256"].get(checkpoint.name)
        arguments = dict(mark["arguments"])
    except Exception:  # there is none, or another program wrote it
        return None
    if settings["overwrite"] and (not mark.get("overwrite") or (log / SECOND / RESULT).exists()):
        return None
    if not is_same_command or not checkpoint.is_file() or sha256(checkpoint) != digest:
        return None
    say(f"tllib-ancon: {script} has run here before; going on from {checkpoint}", file=sys.stderr)
    return {**arguments, "log": log.resolve()}


def _log_directory(script: str, words: list[str]) -> Path | None:
    """The script's log directory before it has run: from its words, else the default in its text."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--log")
    log = parser.parse_known_args(words)[0].log
    if log:
        return Path(log)
    try:
        program = ast.parse(Path(script).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    for node in ast.walk(program):
        if isinstance(node, ast.Call) and "--log" in _constants(node.args):
            defaults = [option.value for option in node.keywords if option.arg == "default"]
            for default in _constants(defaults):
                return Path(str(default))
    return None


def _constants(expressions: Sequence[ast.expr]) -> list[object]:
    return [expression.value for expression in expressions if isinstance(expression, ast.Constant)]


def _adaptation_flags() -> Flags:
    settings = {**settings_of(AdaptConfig), **methods.settings()}
    return Flags({name: setting for name, setting in settings.items() if name not in OF_THE_SCRIPT})


def second_stage_parser() -> Parser:
    parser = Parser(
        prog="tllib-ancon script PATH ...",
        usage="%(prog)s --method METHOD [flags]",
        description="Flags of the adaptation after a script; all else it takes from the script's arguments.",
    )
    _adaptation_flags().add(parser)
    group = parser.add_argument_group("run")
    group.add_argument("--config", metavar="FILE", help="TOML file of settings of the adaptation; a flag overrides it")
    group.add_argument(
        "--start",
        choices=("latest", "best"),
        help="the checkpoint of the script to adapt; best was chosen on target labels (default: latest)",
    )
    return parser


def _adapt(settings: Options, start: str, script: Options) -> None:
    """Adapt from the checkpoint in the script's log directory, into its folder ``adapt``."""
    from tllib_ancon.training.adapt import adapt
    from tllib_ancon.training.progress import result_summary

    missing = [f"--{name}" for name in NEEDED if script.get(name) is None]
    if missing:
        raise BadSetting(
            f"the script has no {', '.join(missing)}",
            "leave --method out: it is for TLLib's image classification scripts",
        )
    log = Path(script["log"])
    checkpoint = log / "checkpoints" / f"{start}.pth"
    if not checkpoint.is_file():
        raise BadSetting(f"the script left no {checkpoint}", "train with it (--phase train)")
    if start == "best":
        say(f"tllib-ancon: warning: {checkpoint} was chosen on target labels by the script", file=sys.stderr)
    paths = {"checkpoint": str(checkpoint), "log": str(log / SECOND)}
    config = AdaptConfig(**{**_shared_settings(script), **settings, **paths})
    print(result_summary(adapt(config=config).summary))


def _shared_settings(script: Options) -> Options:
    """The script's arguments that are settings of the adaptation, too."""
    names: set[str] = set()
    for owner in (DataConfig, ModelConfig, ImageConfig, RunConfig):
        names.update(settings_of(owner))
    names -= {"log", "scale", "scratch"}
    settings = {name: value for name, value in script.items() if name in names and value is not None}
    settings.setdefault("image_size", SIDE)
    for name in ("source", "target"):
        if isinstance(settings.get(name), str):
            settings[name] = (settings[name],)
    return settings


COMMANDS = {"script": _Script()}
