"""TLLib and dalib import without a warning on current packages, and nobody else sees the repairs."""

import io
import sys
import textwrap

import pytest

from tests.support.tllib import loaded_modules, requires_tllib
from tllib_ancon.toolkit import compat

HEAVY = {"torch", "torchvision", "numpy", "numba", "multiprocessing", "dalib", "tllib"}


def check(finished):
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_enabling_is_cheap(python):
    code = "import sys, tllib_ancon.toolkit as t; t.enable(); print(*sys.modules)"
    assert not HEAVY & set(check(python(code)).split())


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a package in the place of tllib."""

    def install(files):
        for name, text in {"tllib/__init__.py": "", **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        for name in loaded_modules():
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.syspath_prepend(str(tmp_path))

    compat.enable()
    compat.enable()
    assert sum(isinstance(finder, compat._Finder) for finder in sys.meta_path) == 1
    yield install
    for name in loaded_modules():
        del sys.modules[name]


LOGME = {
    "tllib/ranking/__init__.py": "",
    "tllib/ranking/logme.py": """
        from numba import njit

        @njit
        def double(x):
            return 2 * x

        @njit(parallel=True)
        def triple(x):
            return 3 * x
        """,
}


def test_without_numba_logme_runs_and_nobody_else_sees_a_stand_in(install, monkeypatch):
    install(LOGME)
    monkeypatch.setitem(sys.modules, "numba", None)  # importing it fails
    from tllib.ranking import logme

    assert logme.double(2) == 4
    assert logme.triple(2) == 6
    assert "numba" not in sys.modules


LOGGER = {
    "tllib/utils/__init__.py": "",
    "tllib/utils/logger.py": """
        import sys

        class TextLogger:
            def __init__(self, filename, stream=sys.stdout):
                self.terminal, self.log = stream, open(filename, "a")

            def write(self, message):
                self.terminal.write(message)
                self.log.write(message)

            def flush(self):
                self.terminal.flush()

            def close(self):
                self.terminal.close()
                self.log.close()
        """,
}


def test_the_logger_leaves_the_terminal_open(install, tmp_path, monkeypatch):
    install(LOGGER)
    out = io.StringIO()
    err = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    from tllib.utils.logger import TextLogger

    sys.stdout = sys.stderr = logger = TextLogger(str(tmp_path / "log.txt"))
    print("logged")
    logger.close()
    print("after")
    assert sys.stdout == out
    assert sys.stderr == err
    assert out.getvalue() == "logged\nafter\n"
    assert (tmp_path / "log.txt").read_text() == "logged\n"
    assert logger.log.closed


DALIB = ["dalib.adaptation", "dalib.modules.domain_discriminator", "dalib.vision.datasets", "dalib.vision.models"]
TLLIB = [
    "tllib",
    *(f"tllib.alignment.{name}" for name in ("adda", "bsp", "cdan", "dan", "dann", "jan", "mcd", "mdd", "osbp")),
    *(f"tllib.self_training.{name}" for name in ("cc_loss", "dst", "flexmatch", "mcc", "self_ensemble")),
    *(f"tllib.vision.{name}" for name in ("datasets", "models", "transforms", "datasets.partial", "models.reid")),
    *("tllib.normalization.afn", "tllib.ranking", "tllib.regularization", "tllib.translation.cyclegan"),
    *(f"tllib.utils.{name}" for name in ("data", "logger", "meter", "metric", "scheduler")),
]


@pytest.mark.parametrize("names", [DALIB, pytest.param(TLLIB, marks=requires_tllib)], ids=["dalib", "tllib"])
def test_everything_imports_without_a_warning(python, names):
    first = "import torchvision, scipy.spatial, sklearn.covariance, sklearn.manifold, warnings"
    code = f"""
    {first}
    warnings.simplefilter("error")
    import importlib, tllib_ancon.toolkit as toolkit
    toolkit.enable()
    for name in {names!r}:
        importlib.import_module(name)
    from torchvision.models import ResNet50_Weights, resnet
    assert resnet.model_urls["resnet50"] == ResNet50_Weights.IMAGENET1K_V1.url
    """
    check(python(textwrap.dedent(code), "-B"))
