"""``tllib-ancon script``: run an unmodified example script of TLLib, and adapt the model that it leaves."""

import argparse
import os
import sys
from contextlib import suppress
from pathlib import Path

from tllib_ancon.cli.commands import Command, adapt_and_tell
from tllib_ancon.cli.parser import Parser
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.data import DataConfig
from tllib_ancon.config.images import AugmentationConfig
from tllib_ancon.config.model import ModelConfig, StartConfig
from tllib_ancon.config.run import RunConfig
from tllib_ancon.config.settings import defined, settings_of
from tllib_ancon.models.preprocessing import USUAL_SIDE
from tllib_ancon.opening.method import choose_method
from tllib_ancon.runs.files import read_json, write_json
from tllib_ancon.runtime.errors import BadSetting, UserError
from tllib_ancon.runtime.text import say
from tllib_ancon.runtime.types import Options, Record
from tllib_ancon.scripts.running import ScriptRun, run_script

MARK = "script.json"
"""In the script's log directory: the words of a script that has ended well, and the settings that follow from it."""
ADAPTATION = "adapt"
"""In the script's log directory: the folder of the adaptation."""

NEEDED = ("root", "data", "target", "arch")
"""Arguments of TLLib's image classification scripts, without which no model and images are known."""

OF_THE_SCRIPT = (*NEEDED, "source", "log", *settings_of(StartConfig))
"""Settings of the adaptation that the script's arguments and its checkpoint decide."""

SECOND_STAGE = Command(AdaptConfig, adapt_and_tell, "%(prog)s --method METHOD [flags]", without=OF_THE_SCRIPT)
"""The adaptation of the script's last model, into the folder ``adapt`` of its log directory."""


class _Script:
    def add_arguments(self, parser: Parser) -> None:
        example = "Transfer-Learning-Library/examples/domain_adaptation/image_classification/cdan.py"
        parser.add("positional arguments", "script", metavar="PATH", help=f"the script, such as {example}")
        parser.add(
            "positional arguments",
            "arguments",
            nargs=argparse.REMAINDER,
            metavar="...",
            help="the script's own arguments; then, to adapt, --method METHOD and flags of the adaptation",
        )
        parser.usage = "%(prog)s PATH [the script's own arguments] [--method METHOD [flags of the adaptation]]"

    def run(self, args: argparse.Namespace) -> int:
        words, adaptation_words = _at_method(args.arguments)
        if not adaptation_words:
            return _run(args.script, words).exit_status
        requested = SECOND_STAGE.requested(second_stage_parser().parsed(adaptation_words))
        overwrite = choose_method(AdaptConfig(**requested)).overwrite  # an error before the script runs
        log = _log_directory(words)
        command = [os.path.realpath(args.script), *words]
        settings: Options | None = None
        if not overwrite:
            settings = _settings_of_finished(command, log)
        if settings is None:
            outcome = _run(args.script, words)
            if outcome.exit_status != 0:
                return outcome.exit_status
            settings = _settings_of(outcome)
            log.mkdir(parents=True, exist_ok=True)
            write_json(log / MARK, {"command": command, "settings": settings})
        paths = {"checkpoint": str(log / "checkpoints" / "latest.pth"), "log": str(log / ADAPTATION)}
        adapt_and_tell(AdaptConfig(**{**settings, **requested, **paths}))
        return 0


def _at_method(words: list[str]) -> tuple[list[str], list[str]]:
    """The script's own words, and those of the adaptation: the last ``--method`` and what follows it."""
    places = [place for place, word in enumerate(words) if word.partition("=")[0] == "--method"]
    if not places:
        return words, []
    return words[: places[-1]], words[places[-1] :]


def _run(script: str, words: list[str]) -> ScriptRun:
    outcome = run_script(script, words)
    if outcome.exit_status != 0:
        say(f"tllib-ancon: {script} failed: {outcome.failure}", file=sys.stderr)
    return outcome


def _settings_of_finished(command: list[str], log: Path) -> Options | None:
    """The settings that follow from an earlier run of the same script and words, None if there is none.

    Raises:
        UserError: an adaptation in this directory belongs to another command
    """
    with suppress(UserError):  # there is no mark, or another program wrote it
        mark = read_json(log / MARK)
        if mark.get("command") == command:
            say(f"tllib-ancon: {command[0]} has run here before; adapting its model in {log}", file=sys.stderr)
            return dict(mark["settings"])
    if (log / ADAPTATION / "config.json").exists():
        raise BadSetting(
            f"{log / ADAPTATION} holds an adaptation of another command",
            "choose another --log, or pass --overwrite after --method to run both stages again",
        )
    return None


def _settings_of(outcome: ScriptRun) -> Record:
    """The arguments of a script that are settings of the adaptation, too."""
    arguments = defined(vars(outcome.arguments or argparse.Namespace()))
    missing = [f"--{name}" for name in NEEDED if name not in arguments]
    if missing:
        raise BadSetting(
            f"the script has no {', '.join(missing)}",
            "leave --method out: it is for TLLib's image classification scripts",
        )
    names: set[str] = set()
    for owner in (DataConfig, ModelConfig, AugmentationConfig, RunConfig):
        names.update(settings_of(owner))
    names -= {"log", "scale", "scratch"}
    settings = {"image_size": USUAL_SIDE, **{name: value for name, value in arguments.items() if name in names}}
    if "res." in (arguments.get("train_resizing"), arguments.get("val_resizing")):
        settings["image_size"] = arguments["resize_size"]
    for name in ("source", "target"):
        if isinstance(settings.get(name), str):
            settings[name] = (settings[name],)
    if outcome.class_names:  # networks of timm would have another order
        settings["class_names"] = outcome.class_names
    return settings


def _log_directory(words: list[str]) -> Path:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--log")
    log = parser.parse_known_args(words)[0].log
    if not log:
        raise BadSetting("the arguments of the script have no --log", "pass --log DIR before --method")
    return Path(log).resolve()


def second_stage_parser() -> Parser:
    parser = Parser(
        prog="tllib-ancon script PATH ...",
        description="Flags of the adaptation after a script; all else it takes from the script's arguments.",
    )
    SECOND_STAGE.add_arguments(parser)
    return parser


COMMANDS = {"script": _Script()}
