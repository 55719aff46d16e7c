"""Which runs make a table of the paper: a file of ``plans/`` expanded to configurations."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from tllib_ancon import methods
from tllib_ancon.config import AdaptConfig, Config, PretrainConfig, underscored
from tllib_ancon.errors import UserError, unknown_name
from tllib_ancon.settings import command_words, settings_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Settings = Mapping[str, Any]
"""Settings of :mod:`tllib_ancon.config` by name."""

SOURCE_ONLY_START = "erm"
"""The start that is trained without target images, so that all pairs of one source share it."""


STAGES: dict[str, type[Config]] = {"pretrain": PretrainConfig, "adapt": AdaptConfig}


@dataclass(frozen=True)
class Run:
    """One run directory to make.

    Attributes:
        name: its folder below the output folder
        command: ``pretrain`` or ``adapt``
        settings: of that stage
        needs: name of the run whose checkpoint it starts from
    """

    name: str
    command: str
    settings: Settings
    needs: str | None = None

    @property
    def config(self) -> Any:
        """The configuration, with every default filled in.

        Raises:
            UserError: settings that the stage refuses
        """
        return STAGES[self.command](**self.settings)

    @property
    def words(self) -> list[str]:
        """The words of the command line that makes this run."""
        settings = dict(self.settings)
        return [self.command, str(settings.pop("root")), *command_words(settings)]


@dataclass(frozen=True)
class Overrides:
    """Settings of the person in place of the plan's, by stage."""

    source: Settings = field(default_factory=dict)
    adapt: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """The runs of one table.

    Attributes:
        table: its name on the command line, or the path of its file
        title: what it reproduces, and where in the paper
        dataset: value of ``--data``
        pairs: ``source-target``, or targets alone where there is one source or none
        methods: of :func:`tllib_ancon.methods.names`
        seeds: each with a source model of its own
        common, adapt: settings of both stages, and of the adaptation
        source: start (pre-training method) -> settings of the source stage; empty if every run starts from the
            checkpoint in ``adapt``
        variants: further settings of the adaptation, one run each
        published: what is measured -> table of :mod:`tllib_ancon.paper.numbers` to set beside it
        groups: name -> pairs, for ``--pairs``
        source_domain: of targets alone
        notes: deviations and choices that every table of this plan states
    """

    table: str
    title: str
    dataset: str
    pairs: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...] = (0, 1, 2)
    common: Settings = field(default_factory=dict)
    adapt: Settings = field(default_factory=dict)
    source: Mapping[str, Settings] = field(default_factory=dict)
    variants: tuple[Settings, ...] = ({},)
    published: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    source_domain: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def varied(self) -> set[str]:
        """Settings that differ between the variants: the axes of a sweep."""
        return {name for variant in self.variants for name in variant}

    @property
    def known_pairs(self) -> list[str]:
        return list(dict.fromkeys([*self.pairs, *(pair for group in self.groups.values() for pair in group)]))

    def select(
        self,
        methods: Sequence[str] | None = None,
        pairs: Sequence[str] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> Plan:
        """The part of the plan with these methods, pairs (names, patterns as ``A-*`` or groups) and seeds.

        Raises:
            UserError: a name or pattern that matches nothing
        """
        chosen = [pair for word in pairs or () for pair in self._matching(word)]
        return replace(
            self,
            methods=tuple(methods or self.methods),
            pairs=tuple(dict.fromkeys(chosen)) or self.pairs,
            seeds=self.seeds if seeds is None else tuple(seeds),
        )

    def runs(self, root: str, out: Path, overrides: Overrides | None = None) -> list[Run]:
        """Source models first, each once; then the adaptations that start from them."""
        overrides = overrides or Overrides()
        sources: dict[str, Run] = {}
        adaptations = []
        for start, pair, seed in product(self.source or [None], self.pairs, self.seeds):
            source = None if start is None else self._source_run(root, out, start, pair, seed, overrides)
            if source is not None:
                sources[source.name] = source
            adaptations += [
                self._adaptation(root, out, source, pair, seed, method, variant, overrides)
                for method, variant in product(self.methods, self.variants)
            ]
        return [*sources.values(), *adaptations]

    def domains(self, pair: str) -> tuple[str | None, str]:
        """Source and target of a pair."""
        source, dash, target = pair.rpartition("-")
        return (source, target) if dash else (self.source_domain, pair)

    def _matching(self, word: str) -> list[str]:
        if word in self.groups:
            return list(self.groups[word])
        found = [pair for pair in self.known_pairs if fnmatchcase(pair, word)]
        if not found:
            raise unknown_name(f"pair of {self.table}", word, [*self.known_pairs, *self.groups])
        return found

    def _source_run(self, root: str, out: Path, start: str, pair: str, seed: int, overrides: Overrides) -> Run:
        source, target = self.domains(pair)
        assert source is not None
        trained_on = source if start == SOURCE_ONLY_START else pair
        name = f"source/{start}-{_folder(trained_on)}-seed{seed}"
        domains = {"source": (source,), **({} if start == SOURCE_ONLY_START else {"target": (target,)})}
        settings = {**self.common, **self.source[start], **overrides.source}
        return Run(name, "pretrain", {**self._head(root, out, name, seed), **domains, "method": start, **settings})

    def _adaptation(
        self,
        root: str,
        out: Path,
        source: Run | None,
        pair: str,
        seed: int,
        method: str,
        variant: Settings,
        overrides: Overrides,
    ) -> Run:
        start = "imagenet" if source is None else source.name.split("/")[1].split("-")[0]
        label = ",".join([method, *(f"{name}={value}" for name, value in variant.items())])
        name = f"{start}/{_folder(pair)}/{label}-seed{seed}"
        source_domain, target = self.domains(pair)
        domains = {**({"source": (source_domain,)} if source_domain else {}), "target": (target,)}
        settings = _read_by(method, {**self.common, **self.adapt, **overrides.adapt, **variant})
        if source is not None:
            kept = "best.pth" if start == SOURCE_ONLY_START else "latest.pth"
            settings["checkpoint"] = str(out / source.name / "checkpoints" / kept)
        settings = {**self._head(root, out, name, seed), **domains, "method": method, **settings}
        return Run(name, "adapt", settings, None if source is None else source.name)

    def _head(self, root: str, out: Path, name: str, seed: int) -> dict[str, Any]:
        return {"root": root, "data": self.dataset, "seed": seed, "log": str(out / name)}


def tables() -> list[str]:
    """Names of the plans."""
    names = (path.name for path in _folder_of_plans().iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def load(table: str) -> Plan:
    """The plan of a table, or a plan of one's own: the path of a file that ends in ``.toml``.

    Raises:
        UserError: there is no such table; a file that cannot be read
    """
    if table.endswith(".toml"):
        return _own(Path(table).resolve())
    if table not in tables():
        raise unknown_name("table", table, tables())
    return read(table, tomllib.loads((_folder_of_plans() / f"{table}.toml").read_text(encoding="utf-8")))


def _own(path: Path) -> Plan:
    try:
        return read(str(path), tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UserError(f"plan {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"plan {path} is no TOML: {error}") from error


def read(table: str, content: Mapping[str, Any]) -> Plan:
    """A plan from the content of its file.

    ``severities`` multiplies every target: ``frost`` becomes ``frost/1``, ``frost/2``, …

    Raises:
        UserError: an entry that a plan does not have, or one that it needs and that is missing
    """
    missing = [name for name in ("title", "dataset", "pairs", "methods") if name not in content]
    if missing:
        raise UserError(f"plan {table} lacks {', '.join(missing)}")
    content = underscored(content)
    severities = content.pop("severities", None)

    def pairs(names: Sequence[str]) -> tuple[str, ...]:
        if severities is None:
            return tuple(names)
        return tuple(f"{name}/{severity}" for severity, name in product(severities, names))

    unknown = set(content) - set(Plan.__dataclass_fields__)
    if unknown:
        raise UserError(f"plan {table}: unknown entries {', '.join(sorted(unknown))}")
    for name in ("methods", "seeds", "notes"):
        if name in content:
            content[name] = tuple(content[name])
    if "variants" in content:
        content["variants"] = tuple(map(underscored, content["variants"]))
    content["pairs"] = pairs(content["pairs"])
    content["groups"] = {name: pairs(names) for name, names in content.get("groups", {}).items()}
    return Plan(table=table, **content)


def _folder_of_plans() -> Any:
    return files(__package__) / "plans"


def _folder(pair: str) -> str:
    return pair.replace("/", "_")


def _read_by(method: str, settings: Settings) -> dict[str, Any]:
    """Without the settings of other methods: one plan gives those of all."""
    others = set(methods.settings()) - set(methods.settings(method)) - set(settings_of(AdaptConfig))
    return {name: value for name, value in settings.items() if name not in others}
