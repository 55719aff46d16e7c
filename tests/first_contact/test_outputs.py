"""What a model returns is understood or asked about: several tensors, probabilities, one logit, several labels."""

import numpy as np
import pytest
import timm
import torch
import torchvision
from torch import nn

from tests.end_to_end.killable import differences
from tests.first_contact.test_every_model import FORMS
from tests.networks import PIXELS, PREPROCESSING, QUICK, VIT, Net, Returns, normalised, state_of, transformer
from tests.support.refusals import one_line
from tllib_ancon import adapt, certify, online, predict
from tllib_ancon.models.classifier import as_classifier
from tllib_ancon.models.outputs import two_logits

HOW = {**PREPROCESSING, "workers": 0}
FAST = {**QUICK, **PREPROCESSING}
BATCH = normalised(PIXELS[:8])
BOTH_ARE_READ = "equal on all 40 images"


def probabilities(model, **settings):
    return predict(model, PIXELS, **HOW, **settings).probabilities


EVERYWHERE = {
    "adapt": lambda model: adapt(model, PIXELS, **FAST),
    "tent": lambda model: adapt(model, PIXELS, method="tent", **FAST),
    "predict": probabilities,
    "certify": lambda model: certify(model, model, PIXELS, **HOW),
    "online": lambda model: online(model, method="tent")(BATCH),
}


def test_the_chosen_output_is_said_and_a_run_remembers_it(tmp_path, capsys):
    settings = {**FAST, "quiet": False, "log": str(tmp_path / "run")}
    result = adapt(Returns(FORMS["features, logits"]), PIXELS, method="ancon", **settings)
    assert "[1] is taken for its logits, (B, 4)" in capsys.readouterr().err
    with one_line(BOTH_ARE_READ):
        result.certify()


def test_the_logits_are_found_in_a_stream():
    expected = online(Net(), method="tent")(BATCH).softmax(1)
    for form in FORMS.values():
        logits = online(Returns(form), method="tent")(BATCH)
        torch.testing.assert_close(logits.softmax(1), expected)


def test_of_outputs_that_no_head_returns_the_last_computed_are_the_logits():
    weight = torch.linspace(-1, 1, 32).view(8, 4)
    model = Returns(lambda features, logits: (features, features @ weight)).eval()
    expected = (model.body(normalised()) @ weight).softmax(1).detach()
    np.testing.assert_allclose(probabilities(model), expected, atol=1e-5)


class Frozen(Returns):
    """Features that autograd cannot follow to the logits."""

    def forward(self, images):
        with torch.no_grad():
            features = self.body(images)
        return self.form(features, self.head(features))


def test_features_without_a_gradient_are_not_taken_for_logits():
    model = adapt(Frozen(FORMS["features, logits"]), PIXELS, adapted="all", **FAST).model
    assert probabilities(model).shape == (40, 4)


class TwoTasks(Net):
    """Heads of two tasks, or of two exits for the same classes."""

    def __init__(self, width=7, names=None):
        super().__init__()
        self.other = nn.Linear(8, width)
        self.names = names

    def forward(self, images):
        features = self.body(images)
        outputs = self.head(features), self.other(features)
        return outputs if self.names is None else dict(zip(self.names, outputs, strict=True))


class Only(nn.Module):
    """The output at one place of a model's outputs."""

    def __init__(self, model, key):
        super().__init__()
        self.model = model
        self.key = key

    def forward(self, images):
        return self.model(images)[self.key]


@pytest.mark.parametrize(
    ("model", "key", "place"),
    [
        (TwoTasks(), 1, r"\[0\] \(B, 4\) of its head head; \[1\] \(B, 7\) of its head other"),
        (TwoTasks(4), 1, r"\[0\] \(B, 4\) of its head head; \[1\] \(B, 4\) of its head other"),
        (TwoTasks(7, ("kind", "colour")), "colour", r"\['kind'\] \(B, 4\).*\['colour'\] \(B, 7\)"),
    ],
    ids=["two tasks", "two exits", "dict"],
)
def test_outputs_of_several_heads_are_asked_for(model, key, place):
    model.eval()
    for call in EVERYWHERE.values():
        with one_line(rf"several tensors.*{place}.*Wrap it .*head='head'") as error:
            call(model)
        assert "\n" not in str(error.value)
    result = adapt(model, PIXELS, head="other", **FAST)  # the advice
    expected = probabilities(model, head="other")
    assert expected.shape[1] == model.other.out_features
    with one_line(BOTH_ARE_READ):
        result.certify()
    np.testing.assert_allclose(probabilities(Only(model, key)), expected, atol=1e-6)  # the other advice


@pytest.mark.parametrize("name", ["inception_v3", "googlenet"])
def test_auxiliary_logits_in_training_mode_are_left_alone(name):
    network = torchvision.models.get_model(name, num_classes=4, aux_logits=True, init_weights=False)
    images = torch.rand(2, 3, 299, 299)  # the least that Inception's side head takes
    classifier = as_classifier(network, probe=images).train()
    assert classifier.num_classes == 4
    assert classifier.predict(images)[0].shape == (2, 4)


class Named(nn.Module):
    """It takes several arrays by name and returns boxes, which are no logits."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(5)
        self.last = nn.Linear(5, 12)

    def forward(self, left, right):
        both = torch.cat([left, right], 1)
        return self.last(self.norm(both)).unflatten(1, (3, 4))


def test_a_network_of_another_output_takes_adabn_and_tent_alone():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).double()
    images = torch.randn(40, 3, 8, 8) + 1
    settings = {"workers": 0, "quiet": True}
    result = adapt(model, images, method="adabn", **settings).model
    assert result[1].running_mean.dtype == torch.float64
    assert not torch.equal(result[1].running_mean, model[1].running_mean)
    assert torch.equal(result[0].weight, model[0].weight)
    learnt = adapt(model, images, method="tent", epochs=1, batch_size=8, **settings)
    assert not torch.equal(learnt.model[1].weight, model[1].weight)
    assert "tent" in str(learnt)
    with one_line("adabn"):
        adapt(model, images, **settings)


# Probabilities


def ending(end, num_classes=4):
    return Returns(lambda features, logits: end(logits), num_classes).eval()


OF_ONE = "probability of class 1"
OF_ALL = "probabilities that sum to 1"
ENDS = {
    "sigmoid": (1, nn.Sigmoid(), OF_ONE),
    "functional sigmoid": (1, torch.sigmoid, OF_ONE),
    "written sigmoid": (1, lambda z: 1 / (1 + (-z).exp()), OF_ONE),
    "softmax": (4, nn.Softmax(1), OF_ALL),
    "functional softmax": (4, lambda z: z.softmax(-1), OF_ALL),
    "log-softmax": (4, nn.LogSoftmax(1), ""),
    "logits": (4, nn.Identity(), ""),
    "one logit in [0, 1]": (1, nn.Identity(), "taken for the logit of class 1 of two"),
}


@pytest.mark.parametrize("kind", ENDS)
def test_probabilities_are_used_as_such_in_every_command(kind, capsys):
    num_classes, end, line = ENDS[kind]
    plain = Net(num_classes)
    model = ending(end, num_classes)
    if kind == "one logit in [0, 1]":
        plain = ending(two_logits, 1)
        for network in (plain, model):
            nn.init.constant_(network.head.bias, 0.4)
            nn.init.constant_(network.head.weight, 0.1)
    np.testing.assert_allclose(probabilities(model, quiet=False), probabilities(plain), atol=1e-5)
    shown = [capsys.readouterr().err]
    result = adapt(model, PIXELS, method="shot+ancon-auto", **{**FAST, "quiet": False}).model
    shown.append(capsys.readouterr().err)
    assert ["the model returns" in text for text in shown] == [bool(line)] * 2
    assert all(line in text for text in shown)
    of_logits = adapt(plain, PIXELS, method="shot+ancon-auto", **FAST).model
    np.testing.assert_allclose(probabilities(result), probabilities(of_logits), atol=0.02)
    with one_line(BOTH_ARE_READ):
        certify(plain, model, PIXELS, **HOW)


@pytest.mark.filterwarnings("ignore:the model returns")
@pytest.mark.parametrize("method", ["tent", "roid", "ancon-auto"])
def test_a_stream_of_probabilities_learns_as_from_logits(method):
    outputs = online(ending(nn.Softmax(1)), method=method)(BATCH)
    expected = online(Net(), method=method)(BATCH)
    torch.testing.assert_close(outputs.softmax(1), expected.softmax(1), rtol=1e-3, atol=1e-4)
    outputs = online(ending(nn.Sigmoid(), 1), method=method)(BATCH)
    expected = online(Net(1), method=method)(BATCH)
    torch.testing.assert_close(outputs, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("build", "advice"),
    [
        (
            lambda: transformer("ResNet", problem_type="multi_label_classification"),
            "set model.config.problem_type = 'single_label_classification'",
        ),
        (lambda: ending(nn.Sigmoid()), "pass a module that returns what enters the sigmoid"),
        (lambda: ending(torch.sigmoid), "pass a module that returns what enters the sigmoid"),
    ],
    ids=["transformers", "sigmoid", "functional sigmoid"],
)
def test_a_multi_label_classifier_gets_a_line(build, advice):
    model = build()
    for call in EVERYWHERE.values():
        with one_line(f"multi-label.*Classes exclude each other here.*{advice}"):
            call(model)
    if isinstance(model, Returns):  # the advice
        model = Net()
    else:
        model.config.problem_type = "single_label_classification"
    before = state_of(model)
    adapted = EVERYWHERE["adapt"](model).model
    assert differences(before, state_of(adapted))


def headless(library):
    if library == "timm":
        return timm.create_model("test_resnet", num_classes=0).eval()
    transformers = pytest.importorskip("transformers", minversion="5")
    return transformers.ViTModel(transformers.ViTConfig(**VIT)).eval()


@pytest.mark.parametrize("door", EVERYWHERE)
@pytest.mark.parametrize(
    ("library", "way"), [("timm", "create_model"), ("transformers", "AutoModelForImageClassification")]
)
def test_a_network_without_a_classifier_is_no_classifier(library, way, door):
    with one_line(rf"returns \d+ features and no logits, as it has no classifier; .*{way}"):
        EVERYWHERE[door](headless(library))


def test_a_classifier_after_a_network_without_one_counts(capfd):
    body = headless("timm")
    with_head = nn.Sequential(body, nn.Linear(body.num_features, 4))
    for model in (with_head, torchvision.models.shufflenet_v2_x0_5(num_classes=4)):
        assert probabilities(model.eval()).shape == (40, 4)
    assert "nn.Identity" not in capfd.readouterr().err


@pytest.mark.parametrize("door", [door for door in EVERYWHERE if door not in ("certify", "online")])
def test_an_identity_in_place_of_the_head_is_told(door, capfd):
    model = Net().eval()
    model.head = nn.Identity()
    call = EVERYWHERE[door]
    if door in ("adapt", "tent"):
        adapt(model, PIXELS, **{**FAST, "quiet": False, "method": "tent" if door == "tent" else "ancon"})
    else:
        call(model)
    line = "the model's last module head is an nn.Identity, and its output is taken for logits of 8 classes"
    assert line in capfd.readouterr().err
    with pytest.warns(UserWarning, match=line):
        EVERYWHERE["online"](model)


def pooled(features, logits):
    return logits[:, :, None, None]


def percentages(features, logits):
    return 100 * logits.softmax(1)


@pytest.mark.parametrize("form", [pooled, percentages])
def test_logits_of_one_pixel_and_percentages_are_read(form, capfd):
    np.testing.assert_allclose(probabilities(Returns(form)), probabilities(Net()), atol=1e-5)
    assert ("percentages that sum to 100" in capfd.readouterr().err) == (form is percentages)
    adapted = adapt(Returns(form), PIXELS, method="ancon", **FAST)
    expected = adapt(Net(), PIXELS, method="ancon", **FAST)
    np.testing.assert_allclose(adapted.metrics[1]["loss"], expected.metrics[1]["loss"], rtol=1e-4)
    EVERYWHERE["online"](Returns(form))


@pytest.mark.parametrize(
    "form",
    [
        lambda features, logits: nn.functional.softplus(logits),
        lambda features, logits: nn.functional.softplus(logits) + 1,
        lambda features, logits: logits.relu() + 1,
        lambda features, logits: {"alpha": logits.exp() + 1, "features": features},
    ],
)
def test_parameters_of_a_dirichlet_distribution_give_its_mean(form, capfd):
    model = Returns(form).eval()
    with torch.no_grad():
        model.head.weight.mul_(20)
        output = model(normalised())
    parameters = output["alpha"] if isinstance(output, dict) else output
    if parameters.min() < 1:
        parameters = parameters + 1
    expected = parameters / parameters.sum(1, keepdim=True)
    assert predict(model, PIXELS, **PREPROCESSING, workers=0).probabilities == pytest.approx(expected.numpy(), abs=1e-5)
    assert "the logarithms of its parameters are used as logits" in capfd.readouterr().err
    result = adapt(model, PIXELS, **QUICK, **PREPROCESSING)
    assert len(result.metrics) == 2
