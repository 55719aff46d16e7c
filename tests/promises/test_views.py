"""Labels come from the mean prediction of two views of an image, and both views learn."""

import numpy as np
import pytest
import torch
from torch import nn

import tllib_ancon
from tests.support.networks import HALVES
from tests.support.refusals import one_line
from tllib_ancon import methods

CLASSES = 3
SIDE = 8


def network():
    torch.manual_seed(0)
    width = 3 * SIDE**2
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(width), nn.Linear(width, CLASSES)).eval()


def adapt(images, **settings):
    quick = {"method": "self-training", "criterion": "last", "adapted": "all", "epochs": 2, "lr": 1.0}
    loaded = {"batch_size": 4, "workers": 0, "quiet": True, **HALVES}
    sized = {"image_size": SIDE, "train_resizing": "res.", "padding": 0}
    return tllib_ancon.adapt(network(), images, **{**quick, **loaded, **sized, **settings}).model


def pictures(mirrored):
    images = np.random.default_rng(0).integers(0, 256, (12, SIDE, SIDE, 3), dtype=np.uint8)
    return np.maximum(images, images[:, :, ::-1]) if mirrored else images


def parameters(model):
    return nn.utils.parameters_to_vector(model.parameters())


@pytest.mark.parametrize("mirrored", [True, False])
def test_the_second_view_counts_unless_images_equal_their_mirror(mirrored):
    one = parameters(adapt(pictures(mirrored), views=1))
    two = parameters(adapt(pictures(mirrored), views=2))
    assert torch.allclose(one, two, rtol=1e-4, atol=1e-5) == mirrored


def test_predictions_from_two_views_are_the_mean_of_an_image_and_its_mirror():
    how = {**HALVES, "image_size": SIDE, "workers": 0, "quiet": True}
    images = pictures(mirrored=False)
    both = tllib_ancon.predict(network(), images, views=2, **how).probabilities
    one = tllib_ancon.predict(network(), images, **how).probabilities
    of_mirrors = tllib_ancon.predict(network(), images[:, :, ::-1].copy(), **how).probabilities
    np.testing.assert_allclose(both, (one + of_mirrors) / 2, atol=1e-6)


def test_two_views_are_of_images():
    with one_line(r"^`views=2` mirrors images, and these inputs have shape \(3,\); leave it out$"):
        tllib_ancon.predict(nn.Linear(3, 2), torch.zeros(8, 3), views=2)


METHODS = ["self-training", "ancon", "gce+ancon-auto", "gce+ancon", "elr", "nrc", "aad", "nrc+ancon"]


@pytest.mark.parametrize("name", METHODS)
def test_a_second_view_that_predicts_the_same_changes_nothing_and_another_one_does(name):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(6, 4, generator=generator)
    logits = 9 * torch.randn(6, CLASSES, generator=generator)
    other = 9 * torch.randn(6, CLASSES, generator=generator)

    def loss(second_view):
        sizes = {"num_samples": 6, "num_classes": CLASSES, "feature_dim": 4, "total_steps": 2}
        method = methods.create(name, **sizes)
        first_logits = torch.linspace(-1, 1, 18).view(6, 3)
        method.begin_epoch(0, torch.arange(6), features, first_logits)
        return method(torch.arange(6), logits, features, second_view)

    torch.testing.assert_close(loss(None), loss((logits, features)))
    assert not torch.allclose(loss(None), loss((other, features)))


def test_labels_come_from_both_views_and_both_learn():
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(6, CLASSES, generator=generator, requires_grad=True)
    second = torch.randn(6, CLASSES, generator=generator, requires_grad=True)
    method = methods.create("self-training", num_samples=6, num_classes=CLASSES)
    features = torch.zeros(6, 4)
    loss = method(torch.arange(6), first, features, (second, features))
    labels = (first.softmax(1) + second.softmax(1)).argmax(1)
    expected = (nn.functional.cross_entropy(first, labels) + nn.functional.cross_entropy(second, labels)) / 2
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert first.grad is not None
    assert bool(second.grad.any())
