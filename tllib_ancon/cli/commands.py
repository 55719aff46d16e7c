"""The commands of one configuration each: flags and a file make it, a function takes it."""

import argparse
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from tllib_ancon import methods
from tllib_ancon.cli.flags import add_flags, defaults_in_words
from tllib_ancon.cli.parser import Parser
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.certify import CertifyConfig
from tllib_ancon.config.check import CheckConfig
from tllib_ancon.config.predict import STANDARD_OUTPUT, PredictConfig, PredictionsConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.config.run import JsonConfig
from tllib_ancon.config.settings import Flag, Settings, defined, settings_of
from tllib_ancon.config.toml import read_file
from tllib_ancon.opening.method import choose_method
from tllib_ancon.runs.files import new_file, write_json
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.errors import BadSetting, UserError
from tllib_ancon.runtime.text import counted, say
from tllib_ancon.runtime.types import Options


@dataclass(frozen=True)
class Command:
    """A command that makes one configuration of its flags and a file, and acts on it."""

    owner: type[Settings]  # class of the configuration
    act: Callable[[Any], int | None]  # takes the configuration; gives the exit status, None for 0
    usage: str = "%(prog)s [flags]"
    positional: tuple[str, ...] = ()  # settings that are given without a flag
    without: tuple[str, ...] = ()  # settings that have no flag
    log: str | None = None  # run directory where none is given

    @property
    def settings(self) -> dict[str, FieldInfo]:
        """Those that have a flag."""
        settings = settings_of(self.owner)
        if issubclass(self.owner, AdaptConfig):
            settings |= methods.settings()
        return {name: setting for name, setting in settings.items() if name not in self.without}

    def settings_in(self, args: argparse.Namespace) -> Options:
        """The settings on the command line."""
        settings = self.settings
        return {name: value for name, value in vars(args).items() if name in settings}

    def add_arguments(self, parser: Parser) -> None:
        text = "TOML file of settings, named as the flags are; a flag overrides its entry"
        parser.add("options", "--config", metavar="FILE", help=text)
        settings = self.settings
        add_flags(parser, settings, self.positional, defaults_in_words(self.owner, settings))
        parser.usage = self.usage

    def run(self, args: argparse.Namespace) -> int:
        config = self.configured(args)
        if isinstance(config, JsonConfig) and config.json_file:
            new_file(config.json_file, setting="json_file")
        return self.act(config) or 0

    def requested(self, args: argparse.Namespace) -> Options:
        """The settings on the command line, which override those in the file of ``--config``."""
        in_file: Options = {}
        if args.config is not None:
            in_file = read_file(args.config)
        return {**in_file, **self.settings_in(args)}

    def configured(self, args: argparse.Namespace) -> Any:
        """The configuration of the settings that are requested."""
        requested = self.requested(args)
        settings = defined({"log": self.log, **requested})
        for name in self.positional:
            if not settings.get(name):
                raise BadSetting(f"{name.upper()} is missing", f"tllib-ancon {args.chosen} --help shows its place")
        try:
            return choose_method(self.owner(**settings))
        except UserError as error:
            if error.setting in requested and error.setting not in args:
                raise BadSetting(f"{args.config}: {error}") from error
            raise


def adapt_and_tell(config: AdaptConfig) -> None:
    from tllib_ancon import adapt
    from tllib_ancon.training.result import result_summary

    result = adapt(config=config)
    if processes.is_main():
        print(result_summary(result.summary))
        say(f"model: {Path(str(config.log), 'checkpoints', 'best.pth')}")
        say(f"next: tllib-ancon predict IMAGES --checkpoint {shlex.quote(str(config.log))} --out predictions.csv")


def _pretrain(config: PretrainConfig) -> None:
    from tllib_ancon import pretrain

    selected = pretrain(config)["selected"]
    if processes.is_main():
        accuracy = ""
        if "accuracy" in selected:
            images = "held-out source images" if config.method == "erm" else "the target"
            accuracy = f": accuracy {selected['accuracy']:.2f} % on {images}"
        say(f"{config.method}, epoch {selected['epoch']}{accuracy}; model in {config.log}")
        say(f"next: tllib-ancon adapt ROOT -d DATA -t TARGET --checkpoint {shlex.quote(str(config.log))}")


def _predict(config: PredictionsConfig) -> None:
    from tllib_ancon.training.prediction_table import write_prediction_table

    counts = write_prediction_table(config)
    if processes.is_main() and not config.quiet and config.out != STANDARD_OUTPUT:
        errors = ""
        if counts["errors"]:
            errors = f", {counts['errors']:,} of them without a prediction"
        say(f"{counted(counts['rows'], 'image')}{errors}; predictions in {config.out}", file=sys.stderr)


def _certify(config: CertifyConfig) -> None:
    from tllib_ancon.certificate.certify import certify_run

    certify_run(config)


def _check(config: CheckConfig) -> None:
    from tllib_ancon import check

    result = check(config=config)
    say(*result.lines())
    if config.json_file:
        write_json(Path(config.json_file), result.to_dict())


class _EvaluateConfig(JsonConfig, PredictConfig):
    """Which checkpoint is scored on which images."""

    FLAG = Flag(group="options", common=True)


def _evaluate(config: _EvaluateConfig) -> None:
    from tllib_ancon.training.evaluate import evaluate

    processes.on_main(_show)(evaluate(config=config), config)


def _show(evaluation: Any, config: _EvaluateConfig) -> None:
    print(evaluation)
    if config.json_file:
        write_json(Path(config.json_file), evaluation.scores)


_ROOT = ("root",)
_MODEL = "{--checkpoint FILE | -a hf:NAME} [flags]"

COMMANDS = {
    "pretrain": Command(PretrainConfig, _pretrain, "%(prog)s ROOT -d DATA -s SOURCE [flags]", _ROOT, log="runs/source"),
    "adapt": Command(AdaptConfig, adapt_and_tell, f"%(prog)s ROOT {_MODEL}", _ROOT, log="runs/adapted"),
    "evaluate": Command(_EvaluateConfig, _evaluate, f"%(prog)s ROOT {_MODEL}", _ROOT),
    "predict": Command(PredictionsConfig, _predict, f"%(prog)s IMAGES {_MODEL}", _ROOT),
    "certify": Command(CertifyConfig, _certify, "%(prog)s RUN [flags]", ("run",)),
    "check": Command(CheckConfig, _check, f"%(prog)s ROOT {_MODEL}", _ROOT),
}
