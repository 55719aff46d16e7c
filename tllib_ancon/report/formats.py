"""A report as Markdown and as one HTML page, which loads nothing from elsewhere."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape

from tllib_ancon import text
from tllib_ancon.report.tables import Table


def markdown(title: str, remarks: Sequence[str], tables: Sequence[Table]) -> str:
    return _rendered("report.md", title=title, remarks=remarks, tables=tables)


def to_markdown(table: Table) -> str:
    return _rendered("table.md", table=table)


def page(title: str, remarks: Sequence[str], tables: Sequence[Table], pictures: Sequence[Any]) -> str:
    return _rendered("page.html", title=title, remarks=remarks, tables=tables, pictures=pictures)


def _rendered(name: str, **content: Any) -> str:
    loader, autoescape = PackageLoader("tllib_ancon", "report"), select_autoescape(["html"])
    options: dict[str, Any] = {"autoescape": autoescape, "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=loader, finalize=text.html, **options)
    environment.filters |= {"md": text.markdown, "base64": lambda png: b64encode(png).decode()}
    return environment.get_template(name).render(content)
