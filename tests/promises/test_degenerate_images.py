"""Every method is finite on the most degenerate data, sees no label of the target, and changes what it may."""

import numpy as np
import pytest
import torch

from tests.support.killable import differences
from tests.support.small import IMAGES, adapt
from tllib_ancon import methods


def adapted(method, **settings):
    """The model after one epoch."""
    result = adapt(method=method, epochs=1, criterion="last", **settings)
    return dict(result.model.state_dict())


@pytest.mark.parametrize("method", methods.names())
def test_one_epoch_on_images_that_are_all_equal(method):
    state = adapted(method, images=torch.ones(IMAGES, 3, 4, 4))
    assert all(tensor.isfinite().all() for tensor in state.values())


@pytest.mark.parametrize("method", methods.names())
def test_labels_of_the_target_do_not_matter(method):
    permuted = np.random.default_rng(1).permutation(IMAGES) % 3
    assert differences(adapted(method), adapted(method, labels=permuted.tolist())) == []
