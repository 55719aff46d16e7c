import shutil
from pathlib import Path

import pytest

from tests.domains_on_disk import adapt_arguments
from tllib_ancon.cli.main import main

KEPT = ("--epochs", "3", "--method", "ancon", "--weighting", "uniform", "-b", "43", "--lr", "3", "--save-predictions")
"""Every adapted image votes in each epoch; the rate is too large, so that the first epoch is the best."""


@pytest.fixture
def copied(domains, tmp_path):
    """The domains, which a test may change."""
    return Path(shutil.copytree(domains, tmp_path / "domains"))


@pytest.fixture(scope="session")
def kept(domains, source_checkpoint, tmp_path_factory):
    """A finished adaptation of three epochs that kept all it can, of which the first is selected."""
    log = tmp_path_factory.mktemp("kept") / "run"
    assert main(adapt_arguments(domains, source_checkpoint, log, *KEPT)) == 0
    return log


@pytest.fixture
def adapt(domains, source_checkpoint, tmp_path):
    """The words of an adaptation of two epochs with these words besides."""

    def words(log="run", *more, root=domains, checkpoint=source_checkpoint):
        return adapt_arguments(root, checkpoint, tmp_path / log, *more)

    return words
