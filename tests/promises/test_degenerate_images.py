"""Every method is finite on the most degenerate data, sees no label of the target, and changes what it may."""

import numpy as np
import pytest
import torch

from tests.support.killable import differences
from tests.support.small import IMAGES, adapt
from tllib_ancon import methods


def adapted(method, **settings):
    """The model of the epoch that InfoMax selects on a hold-out."""
    result = adapt(method=method, epochs=2, criterion="infomax", **settings)
    return dict(result.model.state_dict())


@pytest.mark.parametrize("method", methods.names())
def test_two_epochs_on_images_that_are_all_equal(method):
    state = adapted(method, images=torch.ones(IMAGES, 3, 4, 4))
    assert all(tensor.isfinite().all() for tensor in state.values())


@pytest.mark.parametrize("method", methods.names())
def test_labels_of_the_target_matter_neither_to_training_nor_to_selection(method):
    permuted = np.random.default_rng(1).permutation(IMAGES) % 3
    assert differences(adapted(method), adapted(method, labels=permuted.tolist())) == []
