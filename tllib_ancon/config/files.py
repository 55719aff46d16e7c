"""Settings in TOML files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tllib_ancon.errors import UserError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_file(path: str | Path) -> dict[str, Any]:
    """The settings in a TOML file, by name; a dash in a name counts as an underscore, as on the command line.

    Raises:
        UserError: the file is missing or is no TOML (where)
    """
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"configuration file {path} cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"configuration file {path} is not TOML ({error})") from error
    return underscored(content)


def underscored(content: Mapping[str, Any]) -> dict[str, Any]:
    """The same entries, also of tables inside, with underscores for dashes in their names."""
    return {
        name.replace("-", "_"): underscored(value) if isinstance(value, Mapping) else value
        for name, value in content.items()
    }
