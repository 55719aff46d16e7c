"""What a hurried person passes to a function gets one line that leads on."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torchvision.datasets import FakeData
from torchvision.transforms import ToTensor

from tests.support.networks import CLASSES, PIXELS, PREPROCESSING, QUICK, Net, Returns
from tests.support.refusals import one_line
from tllib_ancon import (
    adapt,
    certify,
    corr_c,
    evaluate,
    expected_calibration_error,
    infomax,
    mean_entropy,
    online,
    predict,
)

DOORS = [adapt, predict, evaluate]


@pytest.mark.parametrize("config", [{"epochs": 1}, "settings.toml"])
def test_another_config_is_one_line(config):
    with one_line(r"`config` is (dict|str), .* pass AdaptConfig alone, or single settings, .* \*\*settings"):
        adapt(Net(), PIXELS, config=config)
    if isinstance(config, dict):
        adapt(Net(), PIXELS, **{**QUICK, **config}, **PREPROCESSING)


@pytest.mark.parametrize("function", DOORS)
def test_arguments_in_the_other_order(function):
    with one_line("not of type ndarray; pass the network itself, with its weights, and after it the images"):
        function(PIXELS, Net())


def test_a_head_is_named():
    model = Net()
    with one_line("unknown module of the model 'Linear"):
        adapt(model, PIXELS, head=model.head, **PREPROCESSING)


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


def test_a_model_without_parameters_has_nothing_to_adapt():
    settings = {**PREPROCESSING, "class_names": ["red", "green", "blue"], "workers": 0}
    with one_line("no parameter of the model learns with .*; pass a network with weights"):
        adapt(WithoutParameters(), PIXELS, **{**QUICK, **settings})
    assert predict(WithoutParameters(), PIXELS, **settings).probabilities.shape == (40, 3)


def test_sparse_tensors_are_read():
    dense = torch.rand(20, 3, 32, 32).round()
    model = Net().eval()
    expected = predict(model, dense, workers=0).probabilities
    assert np.array_equal(predict(copy.deepcopy(model), dense.to_sparse(), workers=0).probabilities, expected)


def test_evaluate_does_not_read_labels_in_items():
    images = FakeData(20, (3, 32, 32), CLASSES)
    assert "accuracy" not in evaluate(Net(), images, **PREPROCESSING, workers=0).scores
    labels = [label for _, label in images]
    assert "accuracy" in evaluate(Net(), images, labels=labels, **PREPROCESSING, workers=0).scores


@pytest.mark.parametrize("form", [np.array, torch.tensor, pd.Series])
def test_settings_may_be_arrays(form):
    expected = predict(Net(), PIXELS, **PREPROCESSING, workers=0).probabilities
    settings = {name: form(value) if name != "image_size" else value for name, value in PREPROCESSING.items()}
    names = form(["a", "b", "c", "d"]) if form is not torch.tensor else ["a", "b", "c", "d"]
    shown = predict(Net(), PIXELS, **settings, class_names=names, workers=0).probabilities
    assert np.array_equal(shown, expected)


@pytest.mark.parametrize("content", ["version https://git-lfs.github.com/spec/v1", "<html>Not found</html>", ""])
def test_a_file_that_is_no_checkpoint_says_both_ways_on(content, tmp_path):
    (tmp_path / "model.pth").write_text(content, encoding="utf-8")
    with one_line(r"cannot be read as a checkpoint .*copy a damaged file again, of another one save the weights alone"):
        predict(tmp_path / "model.pth", PIXELS, **PREPROCESSING)


def test_the_name_of_a_model_is_an_arch():
    with one_line("hf:someone/vit is not a file; .* as `arch` the name of a model that begins with hf:"):
        predict("hf:someone/vit", PIXELS)
    with one_line("`arch` hf:someone/vit cannot be loaded"):
        predict(None, PIXELS, arch="hf:someone/vit")


@pytest.mark.parametrize(
    ("arguments", "settings", "line"),
    [
        ([], {"method": "rood"}, "did you mean 'roid'"),
        ([PIXELS], {}, "unknown method"),
    ],
)
def test_a_stream_with_other_arguments_is_one_line(arguments, settings, line):
    with one_line(line):
        online(Net(), *arguments, **settings)


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


@pytest.mark.parametrize(
    ("form", "line"),
    [
        (lambda levels: levels * torch.nan, "a transform returns NaN, .* repair the transform"),
    ],
)
def test_a_transform_that_returns_something_else_is_one_line(form, line):
    def transform(image):
        return form(ToTensor()(image))

    with one_line(line):
        adapt(Net(), PIXELS, train_transform=transform, evaluation_transform=transform, **QUICK)


def test_a_transform_may_return_an_array_that_cannot_be_written(recwarn):
    def transform(image):
        levels = np.moveaxis(np.asarray(image, np.float64) / 255, 2, 0)
        levels.flags.writeable = False
        return levels

    shown = predict(Net(), PIXELS, evaluation_transform=transform, workers=0).probabilities
    expected = predict(Net(), PIXELS, evaluation_transform=ToTensor(), workers=0).probabilities
    assert shown == pytest.approx(expected, abs=1e-6)
    assert not [warning for warning in recwarn if "not writable" in str(warning.message)]
