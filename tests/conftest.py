import os
import random
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tests.support.certificates import comparison
from tests.support.domains_on_disk import KEPT, adapt_arguments, small_arguments, write_domains
from tests.support.tllib import missing, requires_tllib
from tllib_ancon.certificate.session import Session
from tllib_ancon.cli.main import main
from tllib_ancon.laboratory import digits
from tllib_ancon.toolkit.toolkit import find

AUTHORS_CODE = Path(__file__).with_name("support") / "authors_code_steps.npz"
torch.set_num_threads(1)
hypothesis.settings.register_profile(
    "suite", max_examples=20, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
hypothesis.settings.load_profile("suite")


@pytest.fixture(autouse=True)
def seeded():
    """No test depends on what the tests before it have drawn."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def golden():
    """Thirty consecutive steps recorded from the authors' code (MIT licence, commit 00bab8a): logits and features that
    were put in, thresholds, votes, targets, losses and gradients that came out."""
    with np.load(AUTHORS_CODE, allow_pickle=False) as data:
        return {name: data[name] for name in data.files}


@pytest.fixture
def few_digits(monkeypatch):
    """How many images each domain of the demo has in the test that asks for this."""
    rendered = digits.rendered_digits
    handwritten = digits.handwritten_digits
    monkeypatch.setattr(digits, "rendered_digits", lambda: rendered(images_per_class=20))
    monkeypatch.setattr(digits, "handwritten_digits", lambda: islice(handwritten(), 200))
    return 200


@pytest.fixture(scope="session")
def domains(tmp_path_factory):
    return write_domains(tmp_path_factory.mktemp("domains"))


@pytest.fixture(scope="session")
def source_checkpoint(domains, tmp_path_factory):
    log = tmp_path_factory.mktemp("source") / "run"
    assert main(["pretrain", *small_arguments(domains), "--epochs", "12", "--log", str(log)]) == 0
    return log / "checkpoints" / "best.pth"


@pytest.fixture
def no_gpu(monkeypatch):
    """What runs beside the stand-in is on the CPU, also where there is a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


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


@pytest.fixture
def steps():
    """The groups of the optimiser at each of its steps: learning rate, weight decay, kernel and parameters."""
    taken = []

    def observe(optimizer, *_):
        taken.append([dict(group) for group in optimizer.param_groups])

    handle = register_optimizer_step_pre_hook(observe)
    yield taken
    handle.remove()


@pytest.fixture
def session(tmp_path):
    return Session(comparison(), log=tmp_path / "answers.json")


@pytest.fixture
def refused(capsys):
    """The one line that a command writes to standard error before it exits with status 2."""

    def refused(words):
        capsys.readouterr()
        assert main(words) == 2
        lines = capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1, lines
        assert lines[0].startswith("tllib-ancon: error: ")
        return lines[0]

    return refused


def pytest_configure(config):
    """With ``--dist loadfile`` files run in their order: by their number of tests the slowest would come last."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_runtest_setup(item):
    """Skip what needs TLLib where it is missing."""
    for mark in item.iter_markers("tllib"):
        reason = missing(mark)
        if reason is not None:
            pytest.skip(reason)


@pytest.fixture(params=["dalib", pytest.param("tllib", marks=requires_tllib)])
def toolkit(request):
    """Each toolkit in turn."""
    return find(request.param)


@pytest.fixture
def python():
    """Run code in a fresh interpreter that finds this checkout; ``paths`` come first on its path."""

    def run(code, *flags, paths=(), cwd=None):
        folders = [*paths, Path(__file__).resolve().parents[1], os.environ.get("PYTHONPATH")]
        search = os.pathsep.join(str(folder) for folder in folders if folder)
        environment = {**os.environ, "PYTHONPATH": search, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *flags, "-c", code]
        return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True)

    return run
