"""The contract of a model: images -> logits (B, K), a true copy, a head; ``output`` and ``head`` answer the rest."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.support.networks import CLASSES, PIXELS, PREPROCESSING, QUICK, Net, Returns, normalised, transformer
from tests.support.refusals import one_line
from tllib_ancon import adapt, certify, check, evaluate, online, predict
from tllib_ancon.outputs import from_one_logit, from_probabilities

HOW = {**PREPROCESSING, "workers": 0, "quiet": True}


def other_net():
    """It predicts the classes of a ``Net`` in another order."""
    model = Net().eval()
    with torch.no_grad():
        model.head.weight.copy_(model.head.weight.flip(0))
        model.head.bias.copy_(model.head.bias.flip(0))
    return model


def of_adapt(model, **how):
    return adapt(model, PIXELS, method="adabn", **QUICK, **PREPROCESSING, **how).metrics


def of_stream(model, **how):
    return online(model, method="adabn", **how)(normalised())


DOORS = {
    "adapt": of_adapt,
    "check": lambda model, **how: check(model, PIXELS, **HOW, **how),
    "predict": lambda model, **how: predict(model, PIXELS, **HOW, **how),
    "evaluate": lambda model, **how: evaluate(model, PIXELS, **HOW, **how),
    "certify": lambda model, **how: certify(other_net(), model, PIXELS, **HOW, **how),
    "online": of_stream,
}
BROKEN = {
    "a tuple": (
        lambda features, logits: (features, logits),
        r"returns \(torch.float32 \(8, 8\), torch.float32 \(8, 4\)\)",
    ),
    "a dict": (lambda features, logits: {"scores": logits}, r"returns \{'scores': torch.float32 \(8, 4\)\}"),
    "integers": (lambda features, logits: logits.long(), r"returns torch.int64 \(8, 4\)"),
    "a softmax": (lambda features, logits: logits.softmax(1), "returns probabilities.*from_probabilities"),
    "sigmoids": (lambda features, logits: logits.sigmoid(), "returns probabilities"),
    "a logit": (lambda features, logits: logits[:, :1], "from_one_logit of one number for an image"),
    "features": (lambda features, logits: features - 1, "8 columns, which may be features.*`class_names`"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_the_contract_is_one_line_that_names_the_hook(name):
    form, line = BROKEN[name]
    with one_line(line) as error:
        of_adapt(Returns(form))
    assert "`output" in str(error.value)


@pytest.mark.parametrize("door", DOORS)
def test_every_door_has_the_check_and_the_hook(door):
    model = Returns(lambda features, logits: (features, logits)).eval()
    with one_line(r"returns \(torch.float32 \(8, 8\), torch.float32 \(8, 4\)\) where logits.*pass `output`"):
        DOORS[door](model)
    if door != "certify":  # whose other model returns a tensor
        for position in (1, "1"):  # as the command line gives it
            DOORS[door](model, output=position)
    DOORS[door](model, output=lambda output: output if isinstance(output, torch.Tensor) else output[1])


def test_in_training_mode_a_tuple_begins_with_the_logits():
    class Tllib(Net):
        def forward(self, images):
            features = self.body(images)
            logits = self.head(features)
            return (logits, features) if self.training else logits

    class Swapped(Net):
        def forward(self, images):
            features = self.body(images)
            logits = self.head(features)
            return (features, logits) if self.training else logits

    how = {**QUICK, **PREPROCESSING, "dropout": True}  # with which a model learns in training mode
    expected = adapt(Net(), PIXELS, **how).model.state_dict()
    torch.testing.assert_close(adapt(Tllib(), PIXELS, **how).model.state_dict(), expected)
    with one_line(r"has 4 classes and returns logits \(.*, 8\) in training mode.*`output`"):
        adapt(Swapped(), PIXELS, **how)
    with one_line(r"`output=1` gives torch.float32 \(4,\) of torch"):  # it returns no tuple in evaluation mode
        adapt(Swapped(), PIXELS, output=1, **how)
    adapt(Swapped(), PIXELS, output=lambda output: output if isinstance(output, torch.Tensor) else output[1], **how)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=9))
def test_one_logit_and_its_probability_are_two_logits(values):
    logit = torch.tensor(values)
    for column in (logit, logit[:, None]):
        torch.testing.assert_close(from_one_logit(column).softmax(1)[:, 1], logit.sigmoid())
        converted = from_probabilities(column.double().sigmoid()).softmax(1)[:, 1]
        torch.testing.assert_close(converted, logit.double().sigmoid(), atol=1e-6, rtol=1e-6)


def test_a_hook_that_raises_or_returns_something_else_is_named_with_what_it_got():
    model = Returns(lambda features, logits: {"a": features, "b": logits})

    def broken(output):
        return output["scores"]

    def wrong(output):
        return output["b"].argmax(1)

    got = r"\{'a': torch.float32 \(8, 8\), 'b': torch.float32 \(8, 4\)\}"
    with one_line(rf"`output=\".*broken\"` raises KeyError \('scores'\) for {got}"):
        of_adapt(model, output=broken)
    with one_line(rf"`output=\".*wrong\"` gives torch.int64 \(8,\) of {got}"):
        of_adapt(model, output=wrong)
    with one_line(rf"`output=\"c\"` gives nothing of {got}"):
        of_adapt(model, output="c")
    with one_line("`output=.1.` raises TypeError .'list' object is not callable"):
        of_adapt(model, output=[1])


def test_a_run_records_a_key_and_asks_again_for_a_function(tmp_path):
    model = Returns(lambda features, logits: {"scores": logits})
    how = {**QUICK, **PREPROCESSING, "method": "adabn"}
    result = adapt(model, PIXELS, output="scores", log=str(tmp_path / "key"), **how)
    expected = predict(result.model, PIXELS, output="scores", **HOW).probabilities
    run = {"checkpoint": str(tmp_path / "key"), **HOW}
    np.testing.assert_array_equal(predict(model, PIXELS, **run).probabilities, expected)

    def scores(output):
        return output["scores"]

    adapt(model, PIXELS, output=scores, log=str(tmp_path / "function"), **how)
    run = {"checkpoint": str(tmp_path / "function"), **HOW}
    with one_line("adapted with a function of its output, .*scores; pass it again as `output`"):
        predict(model, PIXELS, **run)
    np.testing.assert_array_equal(predict(model, PIXELS, output=scores, **run).probabilities, expected)


BEHIND_A_POSITION = {
    "probabilities": (lambda logits: logits.softmax(1), "gives probabilities.*a function.*from_probabilities"),
    "a probability": (lambda logits: logits[:, :1].sigmoid(), "gives torch.float32 .*a function.*from_probabilities"),
}


@pytest.mark.parametrize("name", BEHIND_A_POSITION)
def test_probabilities_behind_a_position_need_a_function_and_it_leads_on(name):
    form, line = BEHIND_A_POSITION[name]
    model = Returns(lambda features, logits: (features, form(logits)))
    with one_line(rf"`output=1` {line}"):
        of_adapt(model, output=1)
    of_adapt(model, output=lambda output: from_probabilities(output[1]))


def test_a_configuration_of_classes_that_exclude_no_others_is_one_line():
    model = transformer("ResNet", problem_type="multi_label_classification")
    wrapper = nn.Sequential(model)
    for door in ("adapt", "online"):
        with one_line("problem_type multi_label_classification; .*'single_label_classification'"):
            DOORS[door](wrapper)
    model.config.problem_type = "single_label_classification"
    of_adapt(wrapper)


# Head


class TwoHeads(Net):
    def __init__(self):
        super().__init__()
        self.second = nn.Linear(8, CLASSES)

    def forward(self, images):
        features = self.body(images)
        return (self.head(features) + self.second(features)) / 2


def test_heads_whose_mean_are_the_logits_are_named():
    with one_line("may be features.*`head`"):
        of_adapt(TwoHeads())
    with one_line(r"what `head=\"head\"` returns for .* are not the model's logits"):
        of_adapt(TwoHeads(), head="head")
    result = adapt(TwoHeads(), PIXELS, method="nrc", head="head,second", **QUICK, **PREPROCESSING)
    assert torch.equal(result.model.second.weight, TwoHeads().second.weight)


def test_without_a_head_all_learns_and_methods_of_features_say_so():
    model = nn.Sequential(nn.Conv2d(3, 4, 32), nn.Flatten())
    names = [*"abcd"]
    result = adapt(model, normalised(), method="ancon", class_names=names, **QUICK)
    assert not torch.equal(result.model[0].weight, model[0].weight)
    with one_line(
        "^this method needs the features that enter the model's head, and no layer alone gives its logits; in "
        "Python name "
        'the head by head="NAME", several whose mean are the logits by head="NAME,NAME", or in an own loop pass '
        "the width "
        "of its input as feature_dim$"
    ):
        adapt(model, normalised(), method="nrc", class_names=names, **QUICK)


# Copy


def calls_the_original():
    model = Net()
    parts = [model.body, model.head]
    model.forward = lambda images: parts[1](parts[0](images))
    return model


def part_is_compiled():
    torch._dynamo.reset()
    model = Net()
    model.forward = torch.compile(model.forward, backend="eager")
    return model


class Forgets(Net):
    """A copy of it computes something else."""

    scale = 1.0

    def __deepcopy__(self, memo):
        copied = Forgets()
        copied.load_state_dict(self.state_dict())
        copied.scale = 2.0
        return copied

    def forward(self, images):
        return self.scale * super().forward(images)


@pytest.mark.parametrize(
    ("build", "line"),
    [
        (calls_the_original, "a copy of the model .* calls Sequential of the model itself"),
        (part_is_compiled, "a copy of the model .* calls Sequential of the model itself"),
        (Forgets, r"a copy of the model by `copy\.deepcopy` gives other logits"),
    ],
)
def test_a_copy_that_is_none_is_one_line_and_predictions_need_no_copy(build, line):
    for door in ("adapt", "online"):
        with one_line(line):
            DOORS[door](build().eval())
    assert DOORS["predict"](build()).probabilities.shape == (len(PIXELS), CLASSES)


def test_logits_of_a_dict_need_no_hook():
    expected = predict(Net().eval(), PIXELS, **HOW).probabilities
    model = Returns(lambda features, logits: {"logits": logits}).eval()
    np.testing.assert_allclose(predict(model, PIXELS, **HOW).probabilities, expected, atol=1e-6)
