"""``tllib-ancon script``: run an unmodified example script of TLLib, and adapt the model that it leaves."""

import argparse
import ast
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tllib_ancon import methods
from tllib_ancon.cli.flags import Flags
from tllib_ancon.cli.parser import Parser
from tllib_ancon.config import AdaptConfig, read_file
from tllib_ancon.errors import UserError
from tllib_ancon.settings import settings_of
from tllib_ancon.shared_settings import DataConfig, ImageConfig, ModelConfig, RunConfig, StartConfig
from tllib_ancon.text import say
from tllib_ancon.toolkit.script import run_script
from tllib_ancon.training.files import sha256, write_json

MARK, SECOND, RESULT = "script.json", "adapt", "result.json"
"""In the script's log directory: the mark of a finished first stage, the folder of the adaptation, and there the file
that ends it."""

NEEDED = ("root", "data", "target", "arch", "log")
"""Arguments that an image classification script of TLLib has, and that the adaptation takes from it."""

OF_THE_SCRIPT = (*NEEDED, "source", *settings_of(StartConfig))
"""Settings of the adaptation that the script's arguments and its checkpoint decide."""


class Script:
    def add_arguments(self, parser: Parser) -> None:
        example = "Transfer-Learning-Library/examples/domain_adaptation/image_classification/cdan.py"
        parser.add_argument("script", metavar="PATH", help=f"the script, such as {example}")
        parser.add_argument(
            "arguments",
            nargs=argparse.REMAINDER,
            metavar="...",
            help="the script's own arguments; then, to adapt, --method METHOD and flags of the adaptation",
        )
        parser.usage = "%(prog)s PATH [the script's own arguments] [--method METHOD [flags of the adaptation]]"

    def run(self, args: argparse.Namespace) -> int:
        words = args.arguments
        ours = (number for number, word in enumerate(words) if word.partition("=")[0] == "--method")
        border = next(ours, len(words))
        own, adapts = words[:border], border < len(words)
        given: dict[str, Any] = {}
        log = arguments = None
        if adapts:
            second = second_stage_parser().parsed(words[border:])
            file = {} if second.config is None else read_file(second.config)
            given = {"overwrite": False, **file, **adaptation_flags().given(second)}
            given["start"] = second.start or given.get("start", "latest")
            AdaptConfig(**given)  # an error before the script runs
            log = log_of(args.script, own)
            arguments = finished_stage(log, args.script, own, given) if log else None
        if arguments is None:
            if log is not None and not given["overwrite"] and (log / SECOND / "config.json").exists():
                raise UserError(
                    f"{log / SECOND} holds an adaptation of another command, or of a script whose checkpoint has "
                    "changed; choose another --log, or pass --overwrite after --method to run both stages again"
                )
            outcome = run_script(args.script, own)
            if outcome.exit_status != 0:
                say(f"tllib-ancon: {args.script} failed: {outcome.failure}", file=sys.stderr)
                return outcome.exit_status
            arguments = {**vars(outcome.arguments or argparse.Namespace()), "log": outcome.log_directory}
            if adapts and outcome.log_directory is not None:
                remember(outcome.log_directory, args.script, own, arguments, given["overwrite"])
        if adapts:
            adapt(given, arguments)
        return 0


def remember(log: Path, script: str, words: list[str], arguments: Mapping[str, Any], overwrite: bool) -> None:
    """Mark the first stage as finished, with the checksums of its checkpoints; an earlier adaptation is not of them."""
    sums = {path.name: sha256(path) for path in sorted((log / "checkpoints").glob("*.pth"))}
    own = {"script": os.path.realpath(script), "words": words, "overwrite": overwrite}
    mark = {**own, "sha256": sums, "arguments": dict(arguments)}
    (log / SECOND / RESULT).unlink(missing_ok=True)
    write_json(log / MARK, mark, skipkeys=True, default=lambda value: None)


def finished_stage(log: Path, script: str, words: list[str], given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Arguments of an earlier run of the same command line whose checkpoint is unchanged, else None."""
    checkpoint = log / "checkpoints" / f"{given['start']}.pth"
    try:
        mark = json.loads((log / MARK).read_bytes())
        known = mark["script"] == os.path.realpath(script) and mark["words"] == words
        digest = mark["sha256"].get(checkpoint.name)
        arguments = dict(mark["arguments"])
    except Exception:  # there is none, or another program wrote it
        return None
    if given["overwrite"] and (not mark.get("overwrite") or (log / SECOND / RESULT).exists()):
        return None
    if not known or not checkpoint.is_file() or sha256(checkpoint) != digest:
        return None
    say(f"tllib-ancon: {script} has run here before; going on from {checkpoint}", file=sys.stderr)
    return {**arguments, "log": log.resolve()}


def log_of(script: str, words: list[str]) -> Path | None:
    """The script's log directory before it has run: from its words, else the default in its text."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--log")
    if log := parser.parse_known_args(words)[0].log:
        return Path(log)
    with suppress(OSError, SyntaxError, ValueError):
        for call in ast.walk(ast.parse(Path(script).read_bytes())):
            if isinstance(call, ast.Call) and any(getattr(word, "value", None) == "--log" for word in call.args):
                for option in call.keywords:
                    if option.arg == "default" and isinstance(option.value, ast.Constant):
                        return Path(str(option.value.value))
    return None


def adaptation_flags() -> Flags:
    settings = {**settings_of(AdaptConfig), **methods.settings()}
    return Flags({name: setting for name, setting in settings.items() if name not in OF_THE_SCRIPT})


def second_stage_parser() -> Parser:
    parser = Parser(
        prog="tllib-ancon script PATH ...",
        usage="%(prog)s --method METHOD [flags]",
        description="Flags of the adaptation after a script; all else it takes from the script's arguments.",
    )
    adaptation_flags().add(parser)
    group = parser.add_argument_group("run")
    group.add_argument("--config", metavar="FILE", help="TOML file of settings of the adaptation; a flag overrides it")
    group.add_argument(
        "--start",
        choices=("latest", "best"),
        help="the checkpoint of the script to adapt; best was chosen on target labels (default: latest)",
    )
    return parser


def adapt(given: Mapping[str, Any], script: Mapping[str, Any]) -> None:
    """Adapt from the checkpoint in the script's log directory, into its folder ``adapt``."""
    from tllib_ancon.training.adapt import adapt
    from tllib_ancon.training.progress import result_summary

    missing = [f"--{name}" for name in NEEDED if script.get(name) is None]
    if missing:
        raise UserError(
            f"the script has no {', '.join(missing)}; leave --method out: it is for TLLib's image classification "
            "scripts"
        )
    log = Path(script["log"])
    checkpoint = log / "checkpoints" / f"{given['start']}.pth"
    if not checkpoint.is_file():
        raise UserError(f"the script left no {checkpoint}; train with it (--phase train)")
    if given["start"] == "best":
        say(f"tllib-ancon: warning: {checkpoint} was chosen on target labels by the script", file=sys.stderr)
    owners = (DataConfig, ModelConfig, ImageConfig, RunConfig)
    names = {name for owner in owners for name in settings_of(owner)}
    names -= {"log", "scale", "scratch", "pretrained_weights"}
    taken = {name: value for name, value in script.items() if name in names and value is not None}
    domains = {name: (taken[name],) for name in ("source", "target") if isinstance(taken.get(name), str)}
    config = AdaptConfig(**{**taken, **domains, **given}, checkpoint=str(checkpoint), log=str(log / SECOND))
    print(result_summary(adapt(config=config).summary))


COMMANDS = {"script": Script()}
