"""What a process shares is the caller's again after every call: generators, modes, threads, environment."""

import os
import random

import numpy as np
import pytest
import torch
from torch import nn

import tllib_ancon
from tests.support.domains_on_disk import training, write_domain
from tests.support.small import network
from tllib_ancon.runtime.errors import UserError

IMAGES = torch.randn(24, 3, 4, 4, generator=torch.Generator().manual_seed(0))
QUICK = {"epochs": 1, "workers": 0, "quiet": True}


class Broken(nn.Module):
    """A network whose logits stop being finite once it is trained."""

    def __init__(self):
        super().__init__()
        self.network = network()

    def forward(self, images):
        logits = self.network(images)
        return logits * torch.nan if torch.is_grad_enabled() and len(images) > 2 else logits


def opposed(model):
    for parameter in model[-1].parameters():
        parameter.data.neg_()
    return model


def adapt(**settings):
    return tllib_ancon.adapt(network(), IMAGES, **{**QUICK, **settings})


def pretrain(root):
    write_domain(root, "bright", 12, seed=0)
    tllib_ancon.pretrain(training(root, root / "run", quiet=True, batch_size=4))


CALLS = {
    "adapt": lambda root: adapt(),
    "adapt in one thread": lambda root: adapt(threads=1, seed=3),
    "adapt with a run directory": lambda root: adapt(log=root / "run"),
    "predict": lambda root: tllib_ancon.predict(network(), IMAGES, workers=0),
    "certify": lambda root: tllib_ancon.certify(network(), opposed(network()), IMAGES, workers=0),
    "pretrain": pretrain,
}
FAILING = {
    "adapt before its first step": lambda: adapt(batch_size=25),
    "adapt in a step": lambda: tllib_ancon.adapt(Broken(), IMAGES, **QUICK),
    "predict": lambda: tllib_ancon.predict(network(), IMAGES * torch.nan, workers=0),
}


def shared_state():
    numpy_state = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": (numpy_state[1].tolist(), numpy_state[2:]),
        "torch": torch.get_rng_state().tolist(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "benchmark": torch.backends.cudnn.benchmark,
        "environment": dict(os.environ),
    }


@pytest.fixture
def caller():
    """A process with settings that differ from the defaults."""
    benchmark = torch.backends.cudnn.benchmark
    threads = torch.get_num_threads()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = True
    torch.set_num_threads(2)
    network()  # every call makes one, which seeds torch's generator
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.benchmark = benchmark
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_changes_nothing_that_the_process_shares(name, caller, tmp_path):
    before = shared_state()
    CALLS[name](tmp_path)
    assert shared_state() == before


@pytest.mark.parametrize("name", FAILING)
def test_nor_does_one_that_fails(name, caller):
    before = shared_state()
    with pytest.raises(UserError):
        FAILING[name]()
    assert shared_state() == before
