"""Functions of the user that the command line names, as MODULE:FUNCTION."""

import importlib
import os
import sys
from typing import Any

from tllib_ancon.runtime.errors import BadSetting, named, one_line


def function_named(setting: str, function: str) -> Any:
    """The function that the user gives as ``module:function``; the module may lie in the current folder, as for
    ``python -m``. Nothing else imports by a name, and no name comes from a file of a run."""
    module, _, name = function.partition(":")
    current_folder = os.getcwd()
    if current_folder not in sys.path:
        sys.path.insert(0, current_folder)
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # any error can come out of a user's own module
        raise BadSetting(
            f"{named(setting, function)} cannot be imported ({one_line(error)})",
            "pass MODULE:FUNCTION, such as images:read, of a module that can be imported",
            setting=setting,
        ) from error
