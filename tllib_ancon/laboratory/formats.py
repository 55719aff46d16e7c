"""A report as Markdown and as one HTML page, which loads nothing from elsewhere."""

from base64 import b64encode
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape

from tllib_ancon.runtime import text
from tllib_ancon.runtime.types import Options


def rendered(template: str, **content: Any) -> str:
    """The text of one of the templates: ``report.md``, ``table.md`` or ``page.html``."""
    options: Options = {"autoescape": select_autoescape(["html"]), "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(
        loader=PackageLoader("tllib_ancon", "laboratory/templates"), finalize=text.html, **options
    )
    environment.filters |= {"md": text.markdown, "base64": lambda png: b64encode(png).decode()}
    return environment.get_template(template).render(content)
