"""Which runs make a table of the paper: a TOML file of ``paper/`` expanded to configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import filter as matching
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.config.settings import Settings, settings_of
from tllib_ancon.config.toml import read_file
from tllib_ancon.opening.method import choose_method
from tllib_ancon.runs.directory import RunDirectory
from tllib_ancon.runtime.errors import BadSetting, UserError, named, unknown_name
from tllib_ancon.runtime.types import Options

_FOLDER = Path(__file__).with_name("paper")

_OWNERS = {"pretrain": PretrainConfig, "adapt": AdaptConfig}
_DECIDED = ("root", "source", "target", "data", "method", "seed", "log", "overwrite")
"""Settings that are decided for each run, beside where it starts."""


@dataclass(frozen=True)
class PlannedRun:
    """One run directory to make."""

    name: str  # its folder below that of all runs
    command: str  # ``pretrain`` or ``adapt``
    settings: Options
    needs: str | None = None  # name of the run whose model it starts from

    @property
    def folder(self) -> Path:
        return Path(self.settings["log"])

    @property
    def finished(self) -> bool:
        return RunDirectory(self.folder).finished

    @property
    def config(self) -> Any:
        """The configuration, with the options of its method checked."""
        return choose_method(_OWNERS[self.command](**self.settings))

    @property
    def words(self) -> list[str]:
        """The words of the command line that makes this run, such as ``--lr 0.1 --no-hflip``."""
        words = [self.command, str(self.settings["root"])]
        for name, value in self.settings.items():
            if name != "root":
                words += _flag_words("--" + name.replace("_", "-"), value)
        return words


def _flag_words(flag: str, value: Any) -> list[str]:
    if value is True:
        return [flag]
    if value is False:
        return [] if flag.startswith("--no-") else [f"--no-{flag[2:]}"]
    if isinstance(value, tuple | list):
        return [flag, *map(str, value)] if value else []
    return [flag, str(value)]


Several = Field(min_length=1)


class BenchmarkPlan(Settings):
    """The runs of one table."""

    table: str  # its name on the command line, or the path of its file
    title: str  # what it reproduces, and where in the paper
    dataset: str  # value of ``--data``
    pairs: Annotated[tuple[str, ...], Several]  # ``source-target``, or targets where there is one source or none
    methods: Annotated[tuple[str, ...], Several]
    seeds: Annotated[tuple[int, ...], Several] = (0, 1, 2)  # each with a source model of its own
    common: Mapping[str, Any] = {}  # settings of both stages
    adapt: Mapping[str, Any] = {}  # settings of the adaptation
    source: Mapping[str, Options] = {}  # start -> settings of the source stage; empty: all start from one checkpoint
    variants: Annotated[tuple[Options, ...], Several] = ({},)  # further settings of the adaptation, one run each
    extends: str | None = None  # table of the paper whose settings this plan changes
    published: Mapping[str, str] = {}  # what is measured -> table of :mod:`tllib_ancon.laboratory.published`
    notes: tuple[str, ...] = ()  # deviations and choices that every table of this plan states

    def check(self) -> None:
        settings = set(self.common).union(self.adapt, *self.source.values(), *self.variants)
        for name in settings.intersection(_DECIDED):
            raise BadSetting(
                f"{named(name)} is no setting of a plan: it is decided for each run", "leave it out", setting=name
            )

    def select(
        self, methods: Sequence[str] = (), pairs: Sequence[str] = (), seeds: Sequence[int] = ()
    ) -> BenchmarkPlan:
        """The part of the plan with these methods, pairs (names, or patterns as ``A-*``) and seeds."""
        selected: dict[str, None] = {}
        for pattern in pairs or ["*"]:
            names = matching(self.pairs, pattern)
            if not names:
                raise unknown_name(f"pair of {self.table}", pattern, self.pairs)
            selected |= dict.fromkeys(names)
        return self.replace(
            pairs=tuple(selected), methods=tuple(methods or self.methods), seeds=tuple(seeds or self.seeds)
        )

    def runs(self, root: str, out: Path) -> list[PlannedRun]:
        """Source models first, each once; then the adaptations that start from them."""
        sources: dict[str, PlannedRun] = {}
        adaptations = []
        common = {"root": root, "data": self.dataset, "mixed_precision": "no", **self.common}
        for start, pair, seed in product(self.source or [None], self.pairs, self.seeds):
            settings = {**common, **_domains(pair), "seed": seed}
            needs = None
            if start is not None:
                source = self._source_run(start, settings, out)
                needs = sources.setdefault(source.name, source).name
                settings["checkpoint"] = str(out / needs)
            for method, variant in product(self.methods, self.variants):
                label = ",".join([method, *(f"{name}={value}" for name, value in variant.items())])
                name = f"{start or 'imagenet'}/{_folder(pair)}/{_folder(label)}-seed{seed}"
                of_method = _settings_of_method(method, {**settings, **self.adapt, **variant})
                adaptations.append(PlannedRun(name, "adapt", {**of_method, "log": str(out / name)}, needs))
        return [*sources.values(), *adaptations]

    def _source_run(self, start: str, settings: Options, out: Path) -> PlannedRun:
        if "source" not in settings:
            raise UserError(f"plan {self.table}: {settings['target'][0]} has no source", "write SOURCE-TARGET")
        of_start = {**settings, **self.source[start], "method": start}
        if start == "erm":  # which sees no target images, so that all pairs of one source share it
            del of_start["target"]
        trained_on = "-".join(of_start[domain][0] for domain in ("source", "target") if domain in of_start)
        name = f"source/{start}-{_folder(trained_on)}-seed{settings['seed']}"
        return PlannedRun(name, "pretrain", {**of_start, "log": str(out / name)})


def _domains(pair: str) -> dict[str, tuple[str, ...]]:
    """The target, and the source if the pair has one."""
    source, _, target = pair.rpartition("-")
    if not source:
        return {"target": (target,)}
    return {"source": (source,), "target": (target,)}


def _folder(name: str) -> str:
    return name.replace("/", "_")


def _settings_of_method(method: str, settings: Options) -> Options:
    """The settings of an adaptation without those that other methods of the plan read alone."""
    unread = set(methods.settings()) - set(methods.settings(method)) - set(settings_of(AdaptConfig))
    if not methods.method_class(method).trains:
        unread.update(methods.training_defaults(method))
    return {**{name: value for name, value in settings.items() if name not in unread}, "method": method}


def tables() -> list[str]:
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load(table: str) -> BenchmarkPlan:
    """The plan of a table, or of a TOML file that may say ``extends = TABLE_OR_FILE``."""
    content = _content_of(table)
    if "extends" in content:
        content = _merged(_content_of(content["extends"]), content)
    name = table if table in tables() else str(Path(table).absolute())
    try:
        return BenchmarkPlan(**{**content, "table": name})
    except UserError as error:
        raise UserError(f"plan {name}: {error}") from error


def _content_of(table: str) -> Options:
    if table.endswith(".toml"):
        return read_file(Path(table))
    if table not in tables():
        raise unknown_name("table", table, tables())
    return read_file(_FOLDER / f"{table}.toml")


def _merged(base: Options, changes: Options) -> Options:
    merged = {**base, **changes}
    for name, value in changes.items():
        if isinstance(value, dict) and isinstance(base.get(name), dict):
            merged[name] = _merged(base[name], value)
    return merged
