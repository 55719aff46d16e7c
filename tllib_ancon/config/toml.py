"""Files of settings."""

import sys
from pathlib import Path
from typing import Any

from tllib_ancon.runtime.errors import reading
from tllib_ancon.runtime.types import Options

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_file(path: str | Path) -> Options:
    """The settings in a TOML file, by name; a dash in a name counts as an underscore, as on the command line."""
    with reading(path, "TOML"), open(path, "rb") as file:
        return dict(_underscored(tomllib.load(file)))


def _underscored(content: Any) -> Any:
    """This content with underscores for dashes in the names of all its tables."""
    if isinstance(content, list):
        return [_underscored(entry) for entry in content]
    if isinstance(content, dict):
        return {name.replace("-", "_"): _underscored(value) for name, value in content.items()}
    return content
