"""Every method passes the public checks."""

import pytest

from tllib_ancon import methods, testing

CHOICES = {
    **{name: (name, {}) for name in methods.names()},
    "schedule": ("ancon", {"schedule": "half"}),
    "paper": ("gce+ancon", {"convention": "paper", "normalize": True, "weighting": "entropy"}),
    "a constant threshold": ("nrc+ancon-auto", {"weighting": 0.5}),
    "beliefs": ("ancon", {"loss": "belief-matching"}),
}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda check: check.__name__)
def test_every_method_passes_every_check(choice, check):
    name, options = CHOICES[choice]
    check(lambda: testing.create(name, **options))
