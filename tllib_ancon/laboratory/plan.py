"""Which runs make a table of the paper: a TOML file of ``paper/`` expanded to configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.config.settings import Settings, settings_of
from tllib_ancon.config.toml import read_file
from tllib_ancon.runtime.errors import BadSetting, UserError, named, unknown_name
from tllib_ancon.runtime.types import Options

_FOLDER = Path(__file__).with_name("paper")

_DECIDED = ("root", "source", "target", "data", "method", "seed", "log", "overwrite")
"""Settings that are decided for each run, beside where it starts."""


@dataclass(frozen=True)
class PlannedRun:
    """One run directory to make."""

    name: str  # its folder below the output folder
    command: str  # ``pretrain`` or ``adapt``
    settings: Options
    needs: str | None = None  # name of the run whose checkpoint it starts from
    start: str = "imagenet"  # the method that pretrains its source model, if the plan does so

    def __post_init__(self) -> None:
        if {"", ".", ".."} & set(self.name.split("/")):
            raise UserError(
                f"a plan makes no run called {self.name!r}: it would lie outside the folder of the runs. Rename it"
            )

    @property
    def config(self) -> Any:
        """The configuration, with every default filled in."""
        owners = {"pretrain": PretrainConfig, "adapt": AdaptConfig}
        return owners[self.command](**self.settings)

    @property
    def checkpoint(self) -> str:
        """The file of its model: the best epoch on source images, or the last where no label may choose one."""
        if self.start == "erm":
            return "best.pth"
        return "latest.pth"

    @property
    def words(self) -> list[str]:
        """The words of the command line that makes this run, such as ``--lr 0.1 --no-hflip``."""
        words = [self.command, str(self.settings["root"])]
        for name, value in self.settings.items():
            if name != "root":
                words += _flag_words(name, value)
        return words


def _flag_words(name: str, value: Any) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if value is None or value == ():
        return []
    if value is True:
        return [flag]
    if value is False:
        if name.startswith("no_"):
            return []
        return [f"--no-{flag[2:]}"]
    if isinstance(value, tuple | list):
        return [flag, *map(str, value)]
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
    severities: tuple[int, ...] = ()  # each multiplies every target: ``frost`` becomes ``frost/1``, ``frost/2``, …

    def check(self) -> None:
        for settings in (self.common, self.adapt, *self.source.values(), *self.variants):
            for name in _DECIDED:
                if name in settings:
                    raise BadSetting(
                        f"{named(name)} is no setting of a plan: it is decided for each run",
                        "leave it out",
                        setting=name,
                    )

    @property
    def varied(self) -> set[str]:
        """Settings that differ between the variants: the axes of a sweep."""
        return set().union(*self.variants)

    def select(
        self, methods: Sequence[str] = (), pairs: Sequence[str] = (), seeds: Sequence[int] = ()
    ) -> BenchmarkPlan:
        """The part of the plan with these methods, pairs (names, or patterns as ``A-*``) and seeds."""
        selected: list[str] = []
        for word in pairs:
            matching = [pair for pair in self.pairs if fnmatchcase(pair, word)]
            if not matching:
                raise unknown_name(f"pair of {self.table}", word, self.pairs)
            selected += matching
        return self.replace(
            methods=tuple(methods or self.methods),
            pairs=tuple(dict.fromkeys(selected)) or self.pairs,
            seeds=tuple(seeds or self.seeds),
        )

    def runs(self, root: str, out: Path) -> list[PlannedRun]:
        """Source models first, each once; then the adaptations that start from them."""
        sources: dict[str, PlannedRun] = {}
        adaptations = []
        for start, pair, seed in product(self.source or [None], self.pairs, self.seeds):
            source = None
            if start is not None:
                source = self._source_run(root, out, start, pair, seed)
                sources[source.name] = source
            for method, variant in product(self.methods, self.variants):
                adaptations.append(self._adaptation(root, out, pair, seed, method, variant, source))
        return [*sources.values(), *adaptations]

    def _source_run(self, root: str, out: Path, start: str, pair: str, seed: int) -> PlannedRun:
        domains = self._domain_settings(pair)
        if "source" not in domains:
            raise UserError(f"plan {self.table}: {pair} has no source", "write SOURCE-TARGET")
        trained_on = pair
        if start == "erm":  # which sees no target images, so that all pairs of one source share it
            del domains["target"]
            (trained_on,) = domains["source"]
        name = f"source/{start}-{_folder(trained_on)}-seed{seed}"
        head = self._head(root, out, name, seed)
        settings = {**head, **domains, "method": start, **self.common, **self.source[start]}
        return PlannedRun(name, "pretrain", settings, start=start)

    def _adaptation(
        self, root: str, out: Path, pair: str, seed: int, method: str, variant: Options, source: PlannedRun | None
    ) -> PlannedRun:
        start = source.start if source else "imagenet"
        label = ",".join([method, *(f"{name}={value}" for name, value in variant.items())])
        name = f"{start}/{_folder(pair)}/{_folder(label)}-seed{seed}"
        head = {**self._head(root, out, name, seed), **self._domain_settings(pair), "method": method}
        settings = {**head, **self.common, **self.adapt, **variant}
        for option in set(methods.settings()) - set(methods.settings(method)) - set(settings_of(AdaptConfig)):
            settings.pop(option, None)  # of another method of the plan
        if source is None:
            return PlannedRun(name, "adapt", settings)
        settings["checkpoint"] = str(out / source.name / "checkpoints" / source.checkpoint)
        return PlannedRun(name, "adapt", settings, source.name, start)

    def _head(self, root: str, out: Path, name: str, seed: int) -> Options:
        return {"root": root, "data": self.dataset, "seed": seed, "log": str(out / name), "mixed_precision": "no"}

    def _domain_settings(self, pair: str) -> dict[str, tuple[str, ...]]:
        """The target, and the source if the pair has one."""
        source, _, target = pair.rpartition("-")
        if not source:
            return {"target": (target,)}
        return {"source": (source,), "target": (target,)}

    @property
    def all_domains(self) -> list[str]:
        domains: set[str] = set()
        for pair in self.pairs:
            domains.update(*self._domain_settings(pair).values())
        return sorted(domains)

    def at_each_severity(self) -> BenchmarkPlan:
        if not self.severities:
            return self
        pairs = [f"{target}/{severity}" for severity, target in product(self.severities, self.pairs)]
        return self.replace(pairs=tuple(pairs), severities=())


def tables() -> list[str]:
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load(table: str) -> BenchmarkPlan:
    """The plan of a table, or of a TOML file that may say ``extends = TABLE_OR_FILE``; each target at each severity."""
    if not table.endswith(".toml") and table not in tables():
        raise unknown_name("table", table, tables())
    content: Options = read_file(_file_of(table))
    base = content.get("extends")
    if base is not None:
        if base not in tables() and not Path(base).is_file():
            raise unknown_name("table or file to extend:", str(base), tables())
        content = _merged(read_file(_file_of(base)), content)
    name = table if table in tables() else str(_file_of(table))
    try:
        plan = BenchmarkPlan(**{**content, "table": name})
    except UserError as error:
        raise UserError(f"plan {name}: {error}") from error
    return plan.at_each_severity()


def _file_of(table: str) -> Path:
    if table in tables():
        return _FOLDER / f"{table}.toml"
    return Path(table).absolute()


def _merged(base: Options, changes: Options) -> Options:
    merged = {**base, **changes}
    for name, value in changes.items():
        if isinstance(value, dict) and isinstance(base.get(name), dict):
            merged[name] = _merged(base[name], value)
    return merged


def _folder(pair: str) -> str:
    return pair.replace("/", "_")
