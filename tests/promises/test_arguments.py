"""What a hurried person passes to a function gets one line that leads on."""

import numpy as np
import pytest
import torch
from torch import nn
from torchvision.datasets import FakeData

from tests.support.networks import CLASSES, PIXELS, PREPROCESSING, Net, Returns
from tests.support.refusals import one_line
from tllib_ancon import (
    certify,
    corr_c,
    evaluate,
    expected_calibration_error,
    infomax,
    mean_entropy,
    online,
    predict,
)


@pytest.mark.parametrize("kind", [torch.uint8, torch.float64])
def test_a_stream_of_another_type_is_one_line_that_names_it(kind):
    with one_line(rf"cannot be called on images of shape \(8, 3, 32, 32\), {kind} on cpu .*of this shape, type and"):
        online(Net().eval())(torch.zeros(8, 3, 32, 32, dtype=kind))


def test_a_stream_checks_the_logits_until_a_batch_has_passed():
    stream = online(Returns(lambda features, logits: logits.softmax(1)).eval())
    for _ in range(2):
        with one_line("probabilities"):
            stream(torch.rand(8, 3, 32, 32))


class WithoutParameters(nn.Module):
    def forward(self, images):
        return images.mean((2, 3))


def test_a_model_without_parameters_predicts():
    settings = {**PREPROCESSING, "class_names": ["red", "green", "blue"], "workers": 0}
    assert predict(WithoutParameters(), PIXELS, **settings).probabilities.shape == (40, 3)


def test_evaluate_does_not_read_labels_in_items():
    images = FakeData(20, (3, 32, 32), CLASSES)
    assert "accuracy" not in evaluate(Net(), images, **PREPROCESSING, workers=0).scores


def test_the_name_of_a_model_is_an_arch():
    with one_line("hf:someone/vit is not a file; .* as `arch` the name of a model that begins with hf:"):
        predict("hf:someone/vit", PIXELS)
    with one_line("`arch` hf:someone/vit cannot be loaded"):
        predict(None, PIXELS, arch="hf:someone/vit")


def test_a_stream_opens_a_model_as_predict_does():
    with one_line("checkpoint runs/adapted is not a file"):
        online("runs/adapted")


def test_models_of_other_classes_are_not_compared():
    with one_line("the source model has 4 classes and the adapted model 3; pass two models of the same classes"):
        certify(Net(), Net(3), PIXELS, **PREPROCESSING)


@pytest.mark.parametrize("measure", [infomax, corr_c, mean_entropy])
def test_measures_take_what_predict_returns(measure):
    predictions = predict(Net(), PIXELS, **PREPROCESSING, workers=0)
    assert measure(predictions.probabilities) == measure(torch.from_numpy(predictions.probabilities))
    labels = np.arange(len(PIXELS)) % CLASSES
    expected = expected_calibration_error(torch.from_numpy(predictions.probabilities), torch.from_numpy(labels))
    assert expected_calibration_error(predictions.probabilities, labels) == expected
