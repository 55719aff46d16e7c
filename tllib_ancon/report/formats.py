"""A report as Markdown and as one HTML page, which loads nothing from elsewhere."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape

from tllib_ancon.report.tables import Table

MARKDOWN_SPECIAL = re.compile(r"[\\`*|~]|\](?=[(\[:])|(?<!\w)_|_(?!\w)")
"""Characters of Markdown's syntax. An underscore within a word is none, nor a bracket that is no link's."""


def markdown(title: str, remarks: Sequence[str], tables: Sequence[Table]) -> str:
    return _rendered("report.md", title=title, remarks=remarks, tables=tables)


def to_markdown(table: Table) -> str:
    return _rendered("table.md", table=table)


def page(title: str, remarks: Sequence[str], tables: Sequence[Table], pictures: Sequence[Any]) -> str:
    return _rendered("page.html", title=title, remarks=remarks, tables=tables, pictures=pictures)


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, in one line, and that HTML around it reads as text."""
    return MARKDOWN_SPECIAL.sub(r"\\\g<0>", escape(" ".join(text.split()), quote=False))


def _rendered(name: str, **content: Any) -> str:
    loader, autoescape = PackageLoader("tllib_ancon", "report"), select_autoescape(["html"])
    environment = Environment(loader=loader, autoescape=autoescape, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"md": escaped, "base64": lambda png: b64encode(png).decode()}
    return environment.get_template(name).render(content)
