"""``tllib-ancon list``: what there is of methods, networks, layouts and criteria."""

from collections.abc import Callable, Iterator, Mapping
from inspect import getdoc
from typing import Annotated, Literal

from tllib_ancon import methods
from tllib_ancon.cli.commands import Command
from tllib_ancon.cli.flags import defaults_in_words, help_text
from tllib_ancon.cli.parser import flag
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.settings import Flag, Settings
from tllib_ancon.data.layout import LAYOUTS


def _methods() -> Iterator[str]:
    """Each method with the flags of its options; a composition has those of its parts."""
    for name in methods.names():
        if "+" in name:
            continue
        compositions = [other for other in methods.names() if other.startswith(f"{name}+")]
        summary = str(getdoc(methods.method_class(name))).splitlines()[0]
        yield f"{name:<16} {summary}"
        if compositions:
            yield f"  also {', '.join(compositions)}"
        options = methods.settings(name)
        defaults = defaults_in_words(AdaptConfig, options)
        for option, field in options.items():
            yield f"  {flag(option):<22} {help_text(option, field, defaults[option])}"


def _networks() -> Iterator[str]:
    from tllib_ancon.models.networks import names  # timm starts slowly

    yield from [*names(), "hf:NAME", "open_clip:NAME/WEIGHTS"]


def _layouts() -> Iterator[str]:
    for name, layout in LAYOUTS.items():
        yield f"{name:<18} {layout.help or 'dataset of TLLib'}"


def _criteria() -> Iterator[str]:
    from tllib_ancon.measures.selection import CRITERIA

    for name, criterion in CRITERIA.items():
        best = "higher is better" if criterion.sign > 0 else "lower is better"
        yield f"{name:<16} {best}"
    yield f"{'last':<16} the last epoch"


KINDS: Mapping[str, Callable[[], Iterator[str]]] = {
    "methods": _methods,
    "networks": _networks,
    "layouts": _layouts,
    "criteria": _criteria,
}


class _ListConfig(Settings):
    """What is listed."""

    FLAG = Flag(group="options", common=True)

    kind: Annotated[Literal["methods", "networks", "layouts", "criteria"], Flag(group="positional arguments")]
    """what to list"""


def _list(config: _ListConfig) -> None:
    print(*KINDS[config.kind](), sep="\n")


COMMANDS = {"list": Command(_ListConfig, _list, "%(prog)s KIND", ("kind",))}
