"""The commands of one configuration each: flags and a file make it, a function takes it."""

import argparse
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic.fields import FieldInfo

from tllib_ancon import methods
from tllib_ancon.cli.flags import Flags
from tllib_ancon.cli.parser import Parser
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.certify import CertifyConfig
from tllib_ancon.config.check import CheckConfig
from tllib_ancon.config.predict import STANDARD_OUTPUT, PredictConfig, PredictionsConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.config.run import JsonConfig
from tllib_ancon.config.settings import Flag, Settings, defined, settings_of
from tllib_ancon.config.toml import read_file
from tllib_ancon.runs.files import new_file, read_json, write_bytes, write_json, write_whole
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.errors import BadSetting, UserError, named
from tllib_ancon.runtime.extras import require
from tllib_ancon.runtime.text import counted, say
from tllib_ancon.runtime.types import Metrics, Options


@dataclass(frozen=True)
class Command:
    """A command that makes one configuration of its flags and a file, and acts on it."""

    owner: type[Settings]  # class of the configuration
    act: Callable[[Any], int | None]  # takes the configuration; gives the exit status, None for 0
    positional: tuple[str, ...] = ()  # settings that are given without a flag
    required: tuple[str, ...] = ()  # these and others that must be given
    usage: str = "%(prog)s [flags]"
    further: Callable[[], Mapping[str, FieldInfo]] = dict  # settings beside those of the class
    hidden: tuple[str, ...] = ()  # settings that have no flag
    log: str | None = None  # run directory where none is given
    takes_runs: bool = False  # whether a run directory alone stands for its model and its images

    @property
    def flags(self) -> Flags:
        settings = {name: setting for name, setting in settings_of(self.owner).items() if name not in self.hidden}
        positional = {name: settings[name] for name in self.positional}
        ordered = {**positional, **settings, **self.further()}
        return Flags(ordered, self.positional, self.required, self.owner.DEFAULTS)

    def add_arguments(self, parser: Parser) -> None:
        parser.add_argument(
            "--config", metavar="FILE", help="TOML file of settings, named as the flags are; a flag overrides its entry"
        )
        self.flags.add(parser)
        parser.usage = self.usage

    def run(self, args: argparse.Namespace) -> int:
        config = self.configured(args)
        if isinstance(config, JsonConfig) and config.json_file:
            new_file(config.json_file, setting="json")
        return self.act(config) or 0

    def configured(self, args: argparse.Namespace) -> Any:
        """The configuration of the settings on the command line, which override those in the file of ``--config``."""
        flags = self.flags
        file: Options = {}
        if args.config is not None:
            file = read_file(args.config)
        settings: Options = defined({"log": self.log, **file, **flags.settings_in(args)})
        if self.takes_runs and settings.get("checkpoint") is None:
            settings = _settings_of_run(settings)
        missing = [flags.shown(name) for name in flags.required if not settings.get(name)]
        if "arch" in settings and "checkpoint" in flags.required:  # hf:NAME is a model, too
            missing = [name for name in missing if name != flags.shown("checkpoint")]
        if missing:
            required = f"the following arguments are required: {', '.join(missing)}"
            raise BadSetting(required, f"tllib-ancon {args.chosen} --help lists them")
        try:
            return self.owner(**settings)
        except UserError:
            needed_settings = {name: settings[name] for name in flags.required if name in settings}
            if file:
                self._check_file(args.config, {**needed_settings, **file})
            raise

    def _check_file(self, path: str, settings: Options) -> None:
        """Raise an error that names the file if its settings are wrong by themselves."""
        try:
            self.owner(**settings)
        except UserError as error:
            raise BadSetting(f"{path}: {error}") from error


OF_A_RUN = ("config.json", "checkpoints")
"""What a run directory holds."""


def _settings_of_run(settings: Options) -> Options:
    """The settings, where ``root`` is a run directory with its model and the images that it adapted to."""
    run = settings.get("root")
    if run is None or not all(Path(str(run), name).exists() for name in OF_A_RUN):
        return settings
    recorded = read_json(Path(str(run), OF_A_RUN[0]), advice="give another run directory")
    if not recorded.get("root"):
        raise BadSetting(
            f"{run} does not record where its images lie", f"give their folder and {named('checkpoint', run)}"
        )
    images = {name: recorded.get(name) for name in ("root", "data", "target")}
    return {**settings, **{name: value for name, value in images.items() if value}, "checkpoint": run}


def _adapt(config: AdaptConfig) -> None:
    if not config.quiet and sys.stderr.isatty():
        say("loading PyTorch, the model and the images", file=sys.stderr)
    from tllib_ancon import adapt
    from tllib_ancon.training.result import result_summary

    result = adapt(config=config)
    if not processes.is_main():
        return
    scores = ""
    if not config.quiet:
        scores = _drawn_scores(config, result.metrics)
    print(result_summary(result.summary))
    say(f"model: {Path(str(config.log), 'checkpoints', 'best.pth')}")
    if not config.quiet:
        say(f"scores of each epoch: {scores}")
        images = config.root
        if config.data is not None:
            images = "IMAGES"
        say(_next("predict", images, "--checkpoint", config.log, "--out", "predictions.csv"))


def _next(*words: object) -> str:
    """The command that comes next, as a shell reads it."""
    return f"next: {shlex.join(['tllib-ancon', *map(str, words)])}"


def _drawn_scores(config: AdaptConfig, metrics: Sequence[Metrics]) -> str:
    """The picture of a run's scores, or without matplotlib the file of the numbers and what is missing."""
    from tllib_ancon.laboratory.curves import WITH_LABELS, WITHOUT_LABELS, draw_curves

    folder = Path(str(config.log))
    try:
        require("a picture", "matplotlib", extra="report")
    except UserError as missing:
        return f"{folder / 'metrics.jsonl'}; {missing}"
    measures = WITH_LABELS if "accuracy" in metrics[0] else WITHOUT_LABELS
    picture = folder / "visualize" / "epochs.png"
    picture.parent.mkdir(exist_ok=True)
    write_whole(picture, lambda file: draw_curves([(config.method, metrics)], file, measures))
    return str(picture)


def _pretrain(config: PretrainConfig) -> None:
    from tllib_ancon import pretrain

    selected = pretrain(config)["selected"]
    if processes.is_main():
        accuracy = ""
        if "accuracy" in selected:
            images = "held-out source images" if config.method == "erm" else "the target"
            accuracy = f": accuracy {selected['accuracy']:.2f} % on {images}"
        say(f"{config.method}, epoch {selected['epoch']}{accuracy}; model in {config.log}")
        say(_next("adapt", config.root, "-d", config.data, "-t", "TARGET", "--checkpoint", config.log))


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


class EvaluateConfig(JsonConfig, PredictConfig):
    """Which checkpoint is scored on which images."""

    FLAG = Flag(group="options", common=True)

    confusion: Annotated[str | None, Flag(metavar="FILE")] = None
    """CSV file of the confusion matrix to write"""


def _evaluate(config: EvaluateConfig) -> None:
    from tllib_ancon.training.evaluate import evaluate

    if config.confusion is not None:
        new_file(config.confusion, setting="confusion")
    processes.on_main(_show)(evaluate(config=config), config)


def _show(evaluation: Any, config: EvaluateConfig) -> None:
    for line in evaluation.lines():
        print(line)
    if config.json_file:
        write_json(Path(config.json_file), evaluation.scores)
    if config.confusion is None:
        return
    if evaluation.confusion is None:
        raise BadSetting(
            f"{named('confusion', config.confusion)} needs labels, and the images have none",
            "give folders with the names of the model's classes",
            setting="confusion",
        )
    write_bytes(Path(config.confusion), evaluation.confusion_csv().encode())


ROOT = ("root",)
OF_A_MODEL = "{--checkpoint FILE | -a hf:NAME} [flags]"
UNCHECKED = ("log", "overwrite", "print_freq", "cache", "teacher")
"""Settings of an adaptation that ``check`` cannot show the effect of."""

COMMANDS = {
    "pretrain": Command(
        PretrainConfig,
        _pretrain,
        ROOT,
        ("root", "source"),
        "%(prog)s ROOT -d DATA -s SOURCE [flags]",
        log="runs/source",
    ),
    "adapt": Command(
        AdaptConfig,
        _adapt,
        ROOT,
        ("root", "checkpoint"),
        f"%(prog)s ROOT {OF_A_MODEL}",
        further=methods.settings,
        log="runs/adapted",
    ),
    "evaluate": Command(
        EvaluateConfig,
        _evaluate,
        ROOT,
        ("root", "checkpoint"),
        f"%(prog)s ROOT {OF_A_MODEL}",
        hidden=("source",),
        takes_runs=True,
    ),
    "predict": Command(
        PredictionsConfig,
        _predict,
        ROOT,
        ("root", "checkpoint"),
        f"%(prog)s IMAGES {OF_A_MODEL}",
        hidden=("source",),
        takes_runs=True,
    ),
    "certify": Command(CertifyConfig, _certify, ("run",), ("run",), "%(prog)s RUN [flags]"),
    "check": Command(
        CheckConfig,
        _check,
        ROOT,
        ("root", "checkpoint"),
        f"%(prog)s ROOT {OF_A_MODEL}",
        further=methods.settings,
        hidden=UNCHECKED,
    ),
}
