"""Which flags belong to which stage: of a command that trains a source model, of one that adapts, and of both in one.

A bare flag is the first stage's, ``--adapt-X`` the second's. What both stages share, such as the dataset or the seed,
has one flag, and what the second stage alone has can be given either way.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tllib_ancon import methods
from tllib_ancon.cli.flags import Flags
from tllib_ancon.config import INHERITED, AdaptConfig, Config, PretrainConfig, read_file
from tllib_ancon.errors import UserError, unknown_name
from tllib_ancon.given_paths import IMAGENET, checkpoint_or_run, dataset_root
from tllib_ancon.settings import grouped, settings_of, spec, types_of

SECOND = "adapt-"
BOTH = "both-"
OF_THE_FIRST_STAGE = ("checkpoint", "override", "log", "source", "target")
"""Settings of an adaptation that a first stage decides."""


NOT_SHARED = (*INHERITED, "scratch", "pretrained_weights", "log")
"""Settings of the first stage that the second one does not repeat: it starts from the model that was trained, whose
backbone counts as pre-trained."""


def pretrain_flags(
    names: Mapping[str, str] | None = None, needed: tuple[str, ...] = ("root", "data", "source")
) -> Flags:
    """The flags of :class:`~tllib_ancon.config.PretrainConfig`."""
    return Flags(settings_of(PretrainConfig), types_of(PretrainConfig), names, positional=("root",), needed=needed)


def adapt_flags() -> Flags:
    """The flags of :class:`~tllib_ancon.config.AdaptConfig`, those of every method among them."""
    needed = ("root", "data", "target", "checkpoint")
    return Flags(*_adaptation(), positional=("root",), needed=needed)


def second_stage_flags(beside: tuple[str, ...] = ("",)) -> Flags:
    """The flags of an adaptation on a command whose bare flags are those of another stage.

    Args:
        beside: the prefixes of a setting that the second stage alone has, besides ``adapt-``
    """
    first = settings_of(PretrainConfig)
    settings, kinds = _adaptation()
    own = {
        name: field
        for name, field in settings.items()
        if name not in OF_THE_FIRST_STAGE and (name not in first or spec(first[name]).per_stage)
    }

    def prefixes(name: str) -> tuple[str, ...]:
        return (SECOND,) if name in first and name != "method" else (SECOND, *beside)

    return Flags(own, kinds, prefixes=prefixes)


def both_flags() -> Flags:
    """``--both-X``: one value for the two stages of a setting of which each has its own."""
    first, second = settings_of(PretrainConfig), settings_of(AdaptConfig)
    shared = {name: field for name, field in first.items() if spec(field).per_stage and name in second}
    shared.pop("method")
    return Flags(shared, types_of(PretrainConfig), prefixes=lambda name: (BOTH,))


def add_config_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--config FILE``."""
    parser.add_argument(
        "--config", metavar="FILE", help="TOML file of settings, named as the flags are; a flag overrides its entry"
    )


def from_file(args: argparse.Namespace, owner: type[Config], tables: tuple[str, ...] = ()) -> dict[str, Any]:
    """The settings in ``--config FILE``; an empty dict without one.

    Args:
        owner: whose settings they are
        tables: tables that the file may have besides

    Raises:
        UserError: a file that cannot be read, or an entry that is no setting (the file, the entry, the nearest one)
    """
    if args.config is None:
        return {}
    content = read_file(args.config)
    known = {**settings_of(owner), **(methods.settings() if owner is AdaptConfig else {})}
    for name, value in content.items():
        if isinstance(value, dict):
            if name not in tables:
                raise UserError(f"{args.config}: there is no table [{name}]; {_tables(tables)}")
        elif name not in known:
            raise UserError(f"{args.config}: {unknown_name('setting', name, known)}")
    return content


def configured(owner: type[Config], file: str | None, from_file: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """The configuration of these settings, of which the command line's win.

    Raises:
        UserError: a value that is refused; the message begins with the file if it comes from there
    """
    try:
        return owner(**{**from_file, **given})
    except UserError:
        if not from_file:
            raise
        try:
            owner(**from_file)
        except UserError as error:
            raise UserError(f"{file}: {error}") from error
        raise


def require(config: Config, flags: Flags, prog: str, *names: str) -> None:
    """Refuse a command that lacks one of these settings.

    Raises:
        UserError: which are missing
    """
    missing = [flags.shown(name) for name in names if not getattr(config, name)]
    if missing:
        command = f"tllib-ancon {prog}"
        raise UserError(
            f"the following arguments are required: {', '.join(missing)}; {command} --help tells its arguments"
        )


def require_paths(config: Any) -> None:
    """Refuse a dataset or a checkpoint that is not there, before what would read it is imported.

    Raises:
        UserError: which is not there
    """
    if config.root is not None and not str(config.data).startswith("hf:") and not Path(config.root).exists():
        dataset_root(config.root)
    checkpoint = getattr(config, "checkpoint", None)
    if checkpoint not in (None, IMAGENET):
        checkpoint_or_run(checkpoint)


def second_stage(source: PretrainConfig, given: Mapping[str, Any], log: str | None) -> AdaptConfig:
    """The configuration of an adaptation that begins with training the source model.

    What both stages share is the first one's; the network and the pictures are those of the model that it leaves.

    Raises:
        UserError: a setting that the adaptation refuses
    """
    first = settings_of(PretrainConfig)
    shared = {
        name: getattr(source, name)
        for name in settings_of(AdaptConfig)
        if name in first and not spec(first[name]).per_stage and name not in NOT_SHARED
    }
    return AdaptConfig(**{**shared, **given, "start": source, "log": log})


def shared(given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a first stage's settings that an adaptation has as well and that both have one value of."""
    first, second = settings_of(PretrainConfig), settings_of(AdaptConfig)
    return {name: value for name, value in given.items() if name in second and not spec(first[name]).per_stage}


def shared_with_script(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that an adaptation takes from the arguments of a script of TLLib's."""
    first, kinds = settings_of(PretrainConfig), types_of(AdaptConfig)
    taken = {}
    for name, value in arguments.items():
        shared = name in kinds and name in first and (not spec(first[name]).per_stage or name == "train_resizing")
        if shared and value is not None and name not in ("log", "scratch", "pretrained_weights"):
            sequence = name in ("source", "target") and isinstance(value, str)
            taken[name] = (value,) if sequence else value
    return taken


def _tables(tables: tuple[str, ...]) -> str:
    return f"expected [{'], ['.join(tables)}]" if tables else "all settings stand at the top"


def _adaptation() -> tuple[dict[str, Any], dict[str, Any]]:
    options = {name: grouped(field, "method") for name, field in methods.settings().items()}
    settings = {**settings_of(AdaptConfig), **options}
    return settings, {**types_of(AdaptConfig), **{name: field.type for name, field in options.items()}}
