"""Every method passes the public checks, and its state depends on which samples a batch holds."""

import pytest
import torch

from tllib_ancon import methods, testing
from tllib_ancon.testing import SAMPLES, losses

CHOICES = {
    **{name: (name, {}) for name in methods.names()},
    "schedule": ("ancon", {"schedule": "half"}),
    "paper": ("gce+ancon", {"convention": "paper", "normalize": True, "weighting": "entropy"}),
    "soft": ("shot+ancon", {"temperature": 2.0}),
    "a constant threshold": ("nrc+ancon-auto", {"weighting": 0.5}),
    "normalized": ("nrc+ancon", {"normalize": True}),
    "decaying": ("aad+ancon", {"aad_beta": 5.0}),
    "beliefs": ("ancon", {"loss": "belief-matching"}),
}
EVERY = pytest.mark.parametrize("choice", CHOICES)


def create(choice):
    name, options = CHOICES[choice]
    return testing.create(name, **options)


@EVERY
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda check: check.__name__)
def test_every_method_passes_every_check(choice, check):
    check(lambda: create(choice))


@EVERY
def test_what_a_sample_is_told_depends_on_which_sample_it_is(choice):
    """The opposite check: an index that changes from visit to visit does matter to a method with a memory."""
    method = create(choice)
    generator = torch.Generator().manual_seed(2)
    memory = any(buffer.shape[:1] == (SAMPLES,) for buffer in method.buffers())
    visit = method.visit
    wrong = lambda indices: torch.randperm(SAMPLES, generator=generator)[: len(indices)]  # noqa: E731
    method.visit = lambda indices, *outputs: visit(wrong(indices), *outputs)
    pairs = zip(losses(method), losses(create(choice)), strict=True)
    assert all(torch.allclose(one, other) for one, other in pairs) != memory
