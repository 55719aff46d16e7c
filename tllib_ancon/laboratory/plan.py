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
from tllib_ancon.config import AdaptConfig, PretrainConfig, read_file
from tllib_ancon.errors import UserError, unknown_name
from tllib_ancon.settings import Settings, settings_of

PLANS = Path(__file__).with_name("paper")

Given = Mapping[str, Any]

DECIDED = ("root", "source", "target", "data", "method", "seed", "log", "overwrite")
"""Settings that are decided for each run, beside where it starts."""


@dataclass(frozen=True)
class Run:
    """One run directory to make."""

    name: str  # its folder below the output folder
    command: str  # ``pretrain`` or ``adapt``
    settings: Given
    needs: str | None = None  # name of the run whose checkpoint it starts from

    def __post_init__(self) -> None:
        if {"", ".", ".."} & set(self.name.split("/")):
            raise UserError(
                f"a plan makes no run called {self.name!r}: it would lie outside the folder of the runs. Rename it"
            )

    @property
    def config(self) -> Any:
        """The configuration, with every default filled in."""
        return (PretrainConfig if self.command == "pretrain" else AdaptConfig)(**self.settings)

    @property
    def words(self) -> list[str]:
        """The words of the command line that makes this run, such as ``--lr 0.1 --no-hflip``."""
        words = [self.command, str(self.settings["root"])]
        for name, value in self.settings.items():
            flag = "--" + name.replace("_", "-")
            if isinstance(value, bool):
                off = [] if name.startswith("no_") else ["--no-" + flag[2:]]
                words += [flag] if value else off
            elif name != "root" and value is not None and value != ():
                words += [flag, *(map(str, value) if isinstance(value, tuple | list) else [str(value)])]
        return words


Several = Field(min_length=1)


class Plan(Settings):
    """The runs of one table."""

    table: str  # its name on the command line, or the path of its file
    title: str  # what it reproduces, and where in the paper
    dataset: str  # value of ``--data``
    pairs: Annotated[tuple[str, ...], Several]  # ``source-target``, or targets where there is one source or none
    methods: Annotated[tuple[str, ...], Several]
    seeds: Annotated[tuple[int, ...], Several] = (0, 1, 2)  # each with a source model of its own
    common: Mapping[str, Any] = {}  # settings of both stages
    adapt: Mapping[str, Any] = {}  # settings of the adaptation
    source: Mapping[str, Given] = {}  # start -> settings of the source stage; empty: all start from adapt's checkpoint
    variants: Annotated[tuple[Given, ...], Several] = ({},)  # further settings of the adaptation, one run each
    extends: str | None = None  # table of the paper whose settings this plan changes
    published: Mapping[str, str] = {}  # what is measured -> table of :mod:`tllib_ancon.laboratory.published`
    groups: Mapping[str, tuple[str, ...]] = {}  # name -> pairs, for ``--pairs``
    source_domain: str | None = None  # of targets alone
    notes: tuple[str, ...] = ()  # deviations and choices that every table of this plan states
    severities: tuple[int, ...] = ()  # each multiplies every target: ``frost`` becomes ``frost/1``, ``frost/2``, …

    def check(self) -> None:
        for name in DECIDED:
            if any(name in given for given in (self.common, self.adapt, *self.source.values(), *self.variants)):
                raise UserError(f"`{name}` is no setting of a plan: it is decided for each run; leave it out")

    @property
    def varied(self) -> set[str]:
        """Settings that differ between the variants: the axes of a sweep."""
        return {name for variant in self.variants for name in variant}

    @property
    def known_pairs(self) -> list[str]:
        return list(dict.fromkeys([*self.pairs, *(pair for group in self.groups.values() for pair in group)]))

    def select(self, methods: Sequence[str] = (), pairs: Sequence[str] = (), seeds: Sequence[int] = ()) -> Plan:
        """The part of the plan with these methods, pairs (names, patterns as ``A-*`` or groups) and seeds."""
        chosen: list[str] = []
        for word in pairs:
            found = self.groups.get(word) or [pair for pair in self.known_pairs if fnmatchcase(pair, word)]
            if not found:
                raise unknown_name(f"pair of {self.table}", word, [*self.known_pairs, *self.groups])
            chosen += found
        return self.replace(
            methods=tuple(methods or self.methods),
            pairs=tuple(dict.fromkeys(chosen)) or self.pairs,
            seeds=tuple(seeds or self.seeds),
        )

    def runs(self, root: str, out: Path) -> list[Run]:
        """Source models first, each once; then the adaptations that start from them."""
        sources: dict[str, Run] = {}
        adaptations = []

        def settings(name: str, seed: int, *given: Given) -> dict[str, Any]:
            head = {"root": root, "data": self.dataset, "seed": seed, "log": str(out / name), "mixed_precision": "no"}
            return {key: value for part in (head, *given) for key, value in part.items()}

        for start, pair, seed in product(self.source or [None], self.pairs, self.seeds):
            source, target = self.domains(pair)
            domains = {**({"source": (source,)} if source else {}), "target": (target,)}
            needs, checkpoint = None, {}
            if start is not None:
                if source is None:
                    said = f"plan {self.table}: {pair} has no source"
                    raise UserError(f"{said}; write SOURCE-TARGET, or give `source_domain`")
                alone = start == "erm"  # which sees no target images, so that all pairs of one source share it
                needs = f"source/{start}-{_folder(source if alone else pair)}-seed{seed}"
                seen = {**({"source": (source,)} if alone else domains), "method": start}
                given = settings(needs, seed, seen, self.common, self.source[start])
                sources[needs] = Run(needs, "pretrain", given)
                checkpoint = {"checkpoint": str(out / needs / "checkpoints" / ("best.pth" if alone else "latest.pth"))}
            for method, variant in product(self.methods, self.variants):
                label = ",".join([method, *(f"{name}={value}" for name, value in variant.items())])
                name = f"{start or 'imagenet'}/{_folder(pair)}/{_folder(label)}-seed{seed}"
                own = self.common, self.adapt, variant
                given = settings(name, seed, domains, {"method": method}, *own, checkpoint)
                of_others = set(methods.settings()) - set(methods.settings(method)) - set(settings_of(AdaptConfig))
                given = {name: value for name, value in given.items() if name not in of_others}
                adaptations.append(Run(name, "adapt", given, needs))
        return [*sources.values(), *adaptations]

    def domains(self, pair: str) -> tuple[str | None, str]:
        """Source and target of a pair."""
        source, dash, target = pair.rpartition("-")
        return (source, target) if dash else (self.source_domain, pair)


def tables() -> list[str]:
    return sorted(path.stem for path in PLANS.glob("*.toml"))


def load(table: str) -> Plan:
    """The plan of a table, or of a TOML file that may say ``extends = TABLE_OR_FILE``; each target at each severity."""
    own = Path(table).absolute() if table.endswith(".toml") else None
    if own is None and table not in tables():
        raise unknown_name("table", table, tables())
    content, table = read_file(own or PLANS / f"{table}.toml"), str(own or table)
    if (base := content.get("extends")) is not None:
        if base not in tables() and not Path(base).is_file():
            raise unknown_name("table or file to extend:", str(base), tables())
        content = _merged(read_file(PLANS / f"{base}.toml" if base in tables() else base), content)
    try:
        plan = Plan(**{**content, "table": table})
    except UserError as error:
        raise UserError(f"plan {table}: {error}") from error

    def at_each(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"{name}/{severity}" for severity, name in product(plan.severities, names)) or tuple(names)

    groups = {name: at_each(names) for name, names in plan.groups.items()}
    return plan.replace(pairs=at_each(plan.pairs), groups=groups, severities=())


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    nested = {
        name: _merged(base[name], value)
        for name, value in changes.items()
        if isinstance(value, dict) and isinstance(base.get(name), dict)
    }
    return {**base, **changes, **nested}


def _folder(pair: str) -> str:
    return pair.replace("/", "_")
