"""``tllib-ancon script``: run an unmodified example script of TLLib, and adapt the model that it leaves."""

import argparse
import os
import sys
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
from tllib_ancon.runs.files import read_json, sha256, write_json
from tllib_ancon.runtime.errors import BadSetting, UserError
from tllib_ancon.runtime.text import say
from tllib_ancon.runtime.types import Options, Record
from tllib_ancon.scripts.running import ScriptRun, run_script

MARK = "script.json"
"""In the script's log directory: the mark of a finished first stage."""
SECOND = "adapt"
"""In the script's log directory: the folder of the adaptation."""
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
        log = _log_directory(words)
        arguments = None
        if not settings["overwrite"]:
            arguments = _finished_stage(log, args.script, words)
        if arguments is None:
            if not settings["overwrite"] and (log / SECOND / "config.json").exists():
                raise BadSetting(
                    f"{log / SECOND} holds an adaptation of another command, or of a script whose checkpoint has "
                    "changed",
                    "choose another --log, or pass --overwrite after --method to run both stages again",
                )
            outcome = _run(args.script, words)
            if outcome.exit_status != 0:
                return outcome.exit_status
            arguments = {**vars(outcome.arguments or argparse.Namespace()), "class_names": _class_names(log, outcome)}
            _remember(log, args.script, words, arguments)
        _adapt(settings, start, {**arguments, "log": log})
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


def _remember(log: Path, script: str, words: list[str], arguments: Options) -> None:
    """Mark the first stage as finished, with the checksums of its checkpoints."""
    mark = {**_identity(log, script, words), "arguments": dict(arguments)}
    log.mkdir(parents=True, exist_ok=True)
    write_json(log / MARK, mark, skipkeys=True, default=lambda value: None)


def _identity(log: Path, script: str, words: list[str]) -> Record:
    sums = {path.name: sha256(path) for path in sorted((log / "checkpoints").glob("*.pth"))}
    return {"script": os.path.realpath(script), "words": words, "sha256": sums}


def _finished_stage(log: Path, script: str, words: list[str]) -> Options | None:
    """Arguments of an earlier run of the same command line whose checkpoints are unchanged, else None."""
    try:
        mark = read_json(log / MARK)
    except UserError:  # there is none, or another program wrote it
        return None
    arguments = mark.pop("arguments", {})
    if mark != _identity(log, script, words):
        return None
    say(f"tllib-ancon: {script} has run here before; going on from its checkpoints in {log}", file=sys.stderr)
    return dict(arguments)


def _class_names(log: Path, outcome: ScriptRun) -> str | None:
    """A file with the script's order of class folders; networks of timm would have another one."""
    from tllib_ancon.scripts.own_images import FOLDERS

    if getattr(outcome.arguments, "data", None) not in FOLDERS or not outcome.class_names:
        return None
    file = log / CLASS_NAMES
    file.write_text("".join(f"{name}\n" for name in outcome.class_names), encoding="utf-8")
    return str(file)


def _log_directory(words: list[str]) -> Path:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--log")
    log = parser.parse_known_args(words)[0].log
    if not log:
        raise BadSetting("the arguments of the script have no --log", "pass --log DIR before --method")
    return Path(log).resolve()


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
    from tllib_ancon.training.result import result_summary

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
