"""``tllib-ancon list``: what there is of methods, networks, layouts and criteria."""

import argparse
from collections.abc import Callable, Iterator, Mapping
from inspect import getdoc

from tllib_ancon import methods
from tllib_ancon.cli.flags import help_text
from tllib_ancon.cli.parser import Parser, flag
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
        for option, field in methods.settings(name).items():
            yield f"  {flag(option):<22} {help_text(option, field, {})}"


def _networks() -> Iterator[str]:
    from tllib_ancon.models.networks import names  # timm starts slowly

    yield from names()
    yield "hf:NAME"
    yield "open_clip:NAME/WEIGHTS"


def _layouts() -> Iterator[str]:
    for name, layout in LAYOUTS.items():
        yield f"{name + layout.placeholder:<18} {layout.help or 'dataset of TLLib'}"


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


class _List:
    def add_arguments(self, parser: Parser) -> None:
        parser.add_argument("kind", choices=[*KINDS], help="what to list")

    def run(self, args: argparse.Namespace) -> int:
        for line in KINDS[args.kind]():
            print(line)
        return 0


COMMANDS = {"list": _List()}
