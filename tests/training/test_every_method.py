"""Every method is finite on the most degenerate data, sees no label of the target, and changes what it may."""

import numpy as np
import pytest
import torch

from tests.end_to_end.killable import differences
from tests.self_training.neighborhoods import few_neighbors
from tests.training.small import IMAGES, adapt, network
from tllib_ancon import methods


def adapted(method, **settings):
    """The model after one epoch."""
    result = adapt(method=method, epochs=1, criterion="last", **few_neighbors(method, 2, 2), **settings)
    return dict(result.model.state_dict())


@pytest.mark.parametrize("method", methods.names())
def test_one_epoch_on_images_that_are_all_equal(method):
    assert all(tensor.isfinite().all() for tensor in adapted(method, images=torch.ones(IMAGES, 3, 4, 4)).values())


@pytest.mark.parametrize("method", methods.names())
def test_labels_of_the_target_do_not_matter(method):
    permuted = np.random.default_rng(1).permutation(IMAGES) % 3
    assert differences(adapted(method), adapted(method, labels=permuted.tolist())) == []


ALL = set(dict(network().named_parameters()))
HEAD = {"4.weight", "4.bias"}
AFFINE = {"2.weight", "2.bias"}
WITHOUT_GRADIENT = {"1.bias"}
"""Batch-norm takes the mean away that the bias before it would add."""


@pytest.mark.parametrize(("trained", "expected"), [("all", ALL), ("all-but-head", ALL - HEAD), ("norm-affine", AFFINE)])
def test_which_parameters_change(trained, expected):
    before = dict(network().state_dict())
    after = adapted("ancon", adapted=trained)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed & ALL <= expected
    assert changed >= (expected - WITHOUT_GRADIENT) | {"2.running_mean", "2.running_var"}
