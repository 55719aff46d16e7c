"""Skip what needs an extra where it is not installed. Where all are, nothing is skipped here."""

import re
from importlib.util import find_spec

import pytest

from tllib_ancon.runtime.errors import UserError

PACKAGES = (
    *("pandas", "matplotlib", "sklearn", "scipy", "starlette", "uvicorn", "transformers", "peft", "open_clip"),
    *("datasets", "ray"),
    *("dalib", "prettytable", "qpsolvers", "lightning", "selenium"),
)
MISSING = {package for package in PACKAGES if find_spec(package) is None}


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    excinfo = getattr(report, "call", None) and report.call.excinfo
    return _skipped(report, excinfo, str(collector.path))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    return _skipped(report, call.excinfo, str(item.path))


def _skipped(report, excinfo, path):
    """The report of a skip where a test file or a test met a missing package; else the report as it is."""
    error = None if excinfo is None else excinfo.value
    while error is not None:
        package = _package_of(error)
        if package in MISSING:
            report.outcome = "skipped"
            report.longrepr = (path, 1, f"Skipped: {package} is not installed: pip install '.[test]'")
            return report
        error = error.__cause__
    return report


def _package_of(error):
    """The package that an error says is missing."""
    if isinstance(error, ModuleNotFoundError):
        return str(error.name).partition(".")[0]
    if isinstance(error, UserError):
        named = re.search(r"(\w+)(?: cannot be found. Install it)?: pip install 'tllib-ancon", str(error))
        return named and named[1]
    return None
