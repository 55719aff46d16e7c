"""The project's experiments, behind the pages that ``README.md`` lists. They run from a checkout and are no part of the
package."""

import argparse
import sys

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from tllib_ancon.runtime.errors import UserError

__all__ = ["parser", "run", "tomllib"]


def parser(module, description):
    return argparse.ArgumentParser(
        prog=f"python -m {module}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def run(main):
    """Run a command; bad input ends it with one line."""
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
