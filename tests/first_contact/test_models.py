"""Models as people bring them: what comes back is of the same class, and what cannot be adapted gets one line."""

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import timm
import torch
import torchvision
import transformers
from torch import Tensor, nn
from torch.nn.utils import prune, spectral_norm, weight_norm

from tllib_ancon import adapt, assess, certify, online, predict
from tllib_ancon.models.classifier import as_classifier, shot_classifier
from tllib_ancon.models.networks import create_backbone
from tllib_ancon.models.outputs import two_logits
from tllib_ancon.runtime.errors import UserError

FAST: dict[str, Any] = {"epochs": 1, "threads": 1, "quiet": True}
PREPROCESSING: dict[str, Any] = {"norm_mean": (0.5,) * 3, "norm_std": (0.5,) * 3, "image_size": 32}


class Net(nn.Module):
    def __init__(self, num_classes: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        pooled = nn.AdaptiveAvgPool2d(1), nn.Flatten()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), *pooled)
        self.head = nn.Linear(8, num_classes)

    def forward(self, images: Tensor) -> Any:
        return self.head(self.body(images))


def pixels(count: int = 40) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 255, (count, 32, 32, 3), dtype=np.uint8)


def adapted(model: nn.Module, **settings: Any) -> nn.Module:
    return adapt(model, pixels(), **{**FAST, **PREPROCESSING, "workers": 0, **settings}).model


def probabilities(model: nn.Module, **settings: Any) -> np.ndarray:
    return predict(model, pixels(), **{**PREPROCESSING, "workers": 0, **settings}).probabilities


def without_wrappers(model: nn.Module) -> dict[str, Tensor]:
    return {name.replace("_orig_mod.", "").replace("module.", ""): value for name, value in model.state_dict().items()}


# Wrapped and compiled models


def compiled(model: nn.Module) -> nn.Module:
    return torch.compile(model, backend="eager")  # type: ignore[return-value]


def compiled_in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="eager")
    return model


def compiled_body(model: nn.Module) -> nn.Module:
    model.body = compiled(model.body)
    return model


WRAPPINGS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "compiled": compiled,
    "compiled in place": compiled_in_place,
    "compiled body": compiled_body,
    "data parallel": nn.DataParallel,
    "compiled data parallel": lambda model: compiled(nn.DataParallel(model)),
}


@pytest.mark.parametrize("method", ["adabn", "ancon-auto"])
@pytest.mark.parametrize("kind", WRAPPINGS)
def test_a_wrapped_model_adapts_as_the_plain_one_and_comes_back_wrapped(kind: str, method: str) -> None:
    torch._dynamo.reset()
    model = WRAPPINGS[kind](Net().eval())
    names = [*model.state_dict()]
    result, plain = adapted(model, method=method), adapted(Net().eval(), method=method)
    assert type(result) is type(model)
    assert [*result.state_dict()] == names
    for name, value in without_wrappers(result).items():
        torch.testing.assert_close(value, plain.state_dict()[name], msg=f"{name} of {kind}")
    np.testing.assert_allclose(probabilities(result), probabilities(plain), atol=1e-6)
    images = torch.rand(3, 3, 32, 32)
    torch.testing.assert_close(result(images), plain(images))
    assert (result._compiled_call_impl is not None) == (kind == "compiled in place")
    assert type(getattr(result, "body", None)) is type(getattr(model, "body", None))


def test_a_compiled_model_keeps_its_backend() -> None:
    calls = []

    def backend(graph: Any, inputs: Any) -> Any:
        calls.append(len(inputs))
        return graph.forward

    for wrap in (lambda net: torch.compile(net, backend=backend), lambda net: net.compile(backend=backend) or net):
        torch._dynamo.reset()
        result = adapted(wrap(Net().eval()), method="adabn")
        assert not calls
        with torch.no_grad():
            result(torch.rand(2, 3, 32, 32))
        assert calls
        calls.clear()


def test_a_torchscript_program_predicts_and_does_not_learn() -> None:
    network = Net().eval()
    program = torch.jit.script(network)
    np.testing.assert_allclose(probabilities(program), probabilities(network), atol=1e-6)
    with pytest.raises(UserError, match="TorchScript program does not learn"):
        adapted(program)


def test_online_and_assess_take_a_compiled_model() -> None:
    torch._dynamo.reset()
    stream, batch = online(compiled(Net().eval()), method="tent"), torch.rand(8, 3, 32, 32)
    torch.testing.assert_close(stream(batch), online(Net().eval(), method="tent")(batch))
    how = {**PREPROCESSING, "workers": 0}
    shown = str(assess(compiled(Net().eval()), pixels(), **how))
    assert shown == str(assess(Net().eval(), pixels(), **how))


def test_a_model_of_ddp_comes_back_in_ddp(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(Net().eval())
        result = adapted(model, method="ancon")
        assert type(result) is type(model)
        assert [*result.state_dict()] == [*model.state_dict()]
    finally:
        torch.distributed.destroy_process_group()


# Tensors that are no leaves


class Remembers(Net):
    """It stores features of the last call, as many research models do."""

    def forward(self, images: Tensor) -> Any:
        self.features = self.body(images)
        self.last = {"each": [self.features]}
        return self.head(self.features)


def with_old_weight_norm(part: Callable[[nn.Module], nn.Module]) -> nn.Module:
    net = Net().eval()
    net.head = part(net.head)  # type: ignore[assignment]
    return net


NOT_LEAVES: dict[str, Callable[[], nn.Module]] = {
    "weight_norm": lambda: with_old_weight_norm(weight_norm),
    "spectral_norm": lambda: with_old_weight_norm(spectral_norm),
    "pruned": lambda: with_old_weight_norm(lambda head: prune.l1_unstructured(head, "weight", 0.3)),
    "features": Remembers,
}


@pytest.mark.parametrize("kind", NOT_LEAVES)
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
def test_models_that_hold_results_of_a_forward_pass_adapt(kind: str) -> None:
    model = NOT_LEAVES[kind]().eval()
    model(torch.rand(2, 3, 32, 32))
    before = copy.deepcopy(model.state_dict())
    result = adapted(model, adapted="all")
    assert type(result) is type(model)
    assert any(not torch.equal(value, before[name]) for name, value in result.state_dict().items())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    again = copy.deepcopy(result)  # it holds no graph
    images = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(again(images), result(images))
    assert online(model, method="tent")(torch.rand(8, 3, 32, 32)).shape == (8, 4)
    assess(model, pixels(), **PREPROCESSING, workers=0)


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
def test_the_weight_of_an_old_weight_norm_is_that_of_the_result() -> None:
    result = adapted(with_old_weight_norm(weight_norm), adapted="all")
    direction, length = result.head.weight_v, result.head.weight_g
    torch.testing.assert_close(result.head.weight, length * direction / direction.norm(dim=1, keepdim=True))


def test_a_model_that_cannot_be_copied_gets_a_line() -> None:
    model = Net().eval()
    model.file = (value for value in [])
    with pytest.raises(ValueError, match=r"cannot be copied.*generator.*Remove the attribute"):
        adapted(model)
    del model.file  # the advice
    adapted(model)


# Inference mode


@pytest.mark.parametrize("method", ["tent", "adabn", "eta", "roid", "ancon-auto"])
def test_a_stream_adapts_inside_inference_mode(method: Any) -> None:
    batches = [torch.rand(8, 3, 32, 32) for _ in range(3)]
    stream = online(Net().eval(), method=method)
    expected = [stream(batch) for batch in batches]
    for context in (torch.inference_mode, torch.no_grad):
        with context():
            inside = online(Net().eval(), method=method)
            for batch, outputs in zip(batches, expected, strict=True):
                torch.testing.assert_close(inside(batch.clone()), outputs)
            inside.reset()
            torch.testing.assert_close(inside(batches[0].clone()), expected[0])


@pytest.mark.parametrize("context", [torch.inference_mode, torch.no_grad])
def test_adapt_predict_and_assess_work_inside_inference_mode(context: Any) -> None:
    expected, images = adapted(Net().eval()), pixels()
    with context():
        model = Net().eval()
        result = adapted(model)
        tensors = torch.rand(40, 3, 32, 32)
        adapt(model, tensors, augment=lambda batch: batch.flip(-1), **FAST, workers=0)
        assess(model, images, **PREPROCESSING, workers=0)
        inside = probabilities(result)
    torch.testing.assert_close(dict(result.state_dict()), dict(expected.state_dict()))
    np.testing.assert_allclose(inside, probabilities(expected), atol=1e-6)


# What comes back


LOADS = """
import sys, torch
model = torch.load(sys.argv[1], weights_only=False)
with torch.no_grad():
    torch.save(model(torch.load(sys.argv[2])), sys.argv[3])
assert not [name for name in sys.modules if name.startswith("tllib_ancon")]
"""


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_the_result_loads_without_this_package_and_has_no_hook(precision: str, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    attributes = {name: {*vars(part)} for name, part in model.named_modules()}
    result = adapted(model.eval(), mixed_precision=precision)
    assert type(result) is nn.Sequential
    for name, part in result.named_modules():
        assert not part._forward_pre_hooks
        assert not part._forward_hooks
        assert {*vars(part)} == attributes[name]
    images = torch.rand(4, 3, 32, 32)
    files = [str(tmp_path / name) for name in ("model", "images", "outputs")]
    torch.save(result, files[0])
    torch.save(images, files[1])
    subprocess.run([sys.executable, "-c", LOADS, *files], check=True, cwd=tmp_path, env={"OMP_NUM_THREADS": "1"})
    torch.testing.assert_close(torch.load(files[2]), result(images))


def test_a_result_under_autocast_computes_what_its_weights_do(tmp_path: Path) -> None:
    source, checkpoint = shot_classifier(create_backbone("small_cnn", pretrained=False), 4), tmp_path / "source.pth"
    torch.save(source.state_dict(), checkpoint)
    settings = {**FAST, **PREPROCESSING, "workers": 0, "mixed_precision": "bf16", "arch": "small_cnn"}
    result = adapt(checkpoint, pixels(), **settings).model
    assert type(result) is type(source)
    assert "forward" not in vars(result)
    source.load_state_dict(result.state_dict())
    images = torch.rand(4, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(source.eval()(images), result(images))


class Named(nn.Module):
    """It takes several arrays by name and returns boxes, which are no logits."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.BatchNorm1d(5), nn.Linear(5, 12)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.last(self.norm(torch.cat([left, right], 1))).unflatten(1, (3, 4))


def test_adabn_of_another_output_takes_a_mapping_of_arrays() -> None:
    arrays = {"left": torch.randn(64, 2) + 3, "right": torch.randn(64, 3)}
    result = adapt(Named(), arrays, method="adabn", batch_size=32, quiet=True).model
    torch.testing.assert_close(result.norm.running_mean, torch.cat([*arrays.values()], 1).mean(0))
    assert result(**{name: rows[:2] for name, rows in arrays.items()}).shape == (2, 3, 4)
    assert not result._forward_pre_hooks


# Outputs that are no tensor of logits


class Returns(Net):
    """``form`` makes its output from features (B, 8) and logits (B, 4)."""

    def __init__(self, form: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.form = form

    def forward(self, images: Tensor) -> Any:
        features = self.body(images)
        return self.form(features, self.head(features))


WITH_LOGITS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "features, logits": lambda features, logits: (features, logits),
    "logits, features": lambda features, logits: (logits, features),
    "dict": lambda features, logits: {"features": features, "logits": logits},
    "dict of another key": lambda features, logits: {"embedding": features, "scores": logits},
    "nested": lambda features, logits: {"all": [features, {"prediction": logits}]},
    "logits, probabilities": lambda features, logits: (logits, logits.softmax(1)),
    "probabilities, logits": lambda features, logits: (logits.sigmoid(), logits),
    "object": lambda features, logits: SimpleNamespace(embedding=features, prediction=logits),
    "list of maps": lambda features, logits: [features[:, :, None, None], logits, None],
}


@pytest.mark.parametrize("kind", WITH_LOGITS)
def test_the_logits_are_found_in_an_output_of_several_tensors(kind: str) -> None:
    expected = adapted(Net().eval(), method="shot")
    result = adapted(Returns(WITH_LOGITS[kind]).eval(), method="shot")  # shot needs the head and the features
    torch.testing.assert_close(dict(result.state_dict()), dict(expected.state_dict()))
    np.testing.assert_allclose(probabilities(result), probabilities(expected), atol=1e-6)
    batch = torch.rand(8, 3, 32, 32)
    stream = online(Returns(WITH_LOGITS[kind]).eval(), method="tent")
    torch.testing.assert_close(stream(batch), online(Net().eval(), method="tent")(batch))


def test_the_chosen_output_is_said_and_a_run_remembers_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {**FAST, **PREPROCESSING, "quiet": False, "log": str(tmp_path / "run")}
    result = adapt(Returns(WITH_LOGITS["features, logits"]).eval(), pixels(), method="ancon", **settings)
    assert "[1] is taken for its logits, (B, 4)" in capsys.readouterr().err
    model = Returns(WITH_LOGITS["features, logits"])
    of_the_run = predict(model, pixels(), checkpoint=str(tmp_path / "run")).probabilities
    np.testing.assert_allclose(of_the_run, probabilities(result.model), atol=1e-6)
    with pytest.raises(UserError, match="equal on all 40 images"):  # both models are read
        result.certify()


class Frozen(Returns):
    """Features that autograd cannot follow to the logits."""

    def forward(self, images: Tensor) -> Any:
        with torch.no_grad():
            features = self.body(images)
        return self.form(features, self.head(features))


def test_features_without_a_gradient_are_not_taken_for_logits() -> None:
    model = Frozen(WITH_LOGITS["features, logits"]).eval()
    assert probabilities(adapted(model, adapted="all")).shape == (40, 4)


class TwoTasks(Net):
    """Heads of two tasks, or with ``same`` two exits for the same classes."""

    def __init__(self, other_classes: int = 7, form: Callable[..., Any] = lambda *outputs: outputs) -> None:
        super().__init__()
        self.other, self.form = nn.Linear(8, other_classes), form

    def forward(self, images: Tensor) -> Any:
        features = self.body(images)
        return self.form(self.head(features), self.other(features))


class Only(nn.Module):
    def __init__(self, model: nn.Module, key: Any) -> None:
        super().__init__()
        self.model, self.key = model, key

    def forward(self, images: Tensor) -> Any:
        return self.model(images)[self.key]


@pytest.mark.parametrize(
    ("model", "place"),
    [
        (TwoTasks(), r"\[0\] \(B, 4\) of its head head; \[1\] \(B, 7\) of its head other"),
        (TwoTasks(4), r"\[0\] \(B, 4\) of its head head; \[1\] \(B, 4\) of its head other"),
        (TwoTasks(7, lambda one, two: {"kind": one, "colour": two}), r"\['kind'\] \(B, 4\).*\['colour'\] \(B, 7\)"),
    ],
    ids=["two tasks", "two exits", "dict"],
)
def test_outputs_of_several_heads_are_asked_for(model: nn.Module, place: str) -> None:
    model.eval()
    how = {**PREPROCESSING, "workers": 0}
    for call in (
        lambda **more: adapted(model, **more),
        lambda **more: probabilities(model, **more),
        lambda **more: assess(model, pixels(), **how, **more),
        lambda **more: certify(model, model, pixels(), **how, **more),
        lambda **more: online(model, method="tent", **more)(torch.rand(8, 3, 32, 32)),
    ):
        with pytest.raises(UserError, match=rf"several tensors.*{place}.*Wrap it .*head='head'") as error:
            call()
        assert "\n" not in str(error.value)
    result = adapt(model, pixels(), head="other", **FAST, **how)  # the advice
    width = probabilities(result.model, head="other").shape[1]
    assert width == model.other.out_features
    with pytest.raises(UserError, match="equal on all 40 images"):  # both models are read
        result.certify()
    key = "colour" if "kind" in str(place) else 1
    np.testing.assert_allclose(
        probabilities(Only(model, key)), probabilities(model, head="other"), atol=1e-6
    )  # the other advice


@pytest.mark.parametrize("name", ["inception_v3", "googlenet"])
def test_auxiliary_logits_in_training_mode_are_left_alone(name: str) -> None:
    options = {"num_classes": 4, "aux_logits": True, "init_weights": False}
    network = torchvision.models.get_model(name, **options)
    images = torch.rand(2, 3, 299, 299)  # the least that Inception's side head takes
    classifier = as_classifier(network, probe=images).train()
    assert classifier.num_classes == 4
    assert classifier.predict(images)[0].shape == (2, 4)


# Probabilities


class Ends(Net):
    def __init__(self, num_classes: int, end: Callable[[Tensor], Tensor]) -> None:
        super().__init__(num_classes)
        self.end = end

    def forward(self, images: Tensor) -> Any:
        return self.end(super().forward(images))


WITH_PROBABILITIES: dict[str, tuple[int, Callable[[Tensor], Tensor], str]] = {
    "sigmoid": (1, nn.Sigmoid(), "probability of class 1"),
    "functional sigmoid": (1, torch.sigmoid, "probability of class 1"),
    "written sigmoid": (1, lambda z: 1 / (1 + (-z).exp()), "probability of class 1"),
    "softmax": (4, nn.Softmax(1), "probabilities that sum to 1"),
    "functional softmax": (4, lambda z: z.softmax(-1), "probabilities that sum to 1"),
    "log-softmax": (4, nn.LogSoftmax(1), ""),
    "logits": (4, nn.Identity(), ""),
    "one logit in [0, 1]": (1, nn.Identity(), ""),
}


@pytest.mark.parametrize("kind", WITH_PROBABILITIES)
def test_probabilities_are_used_as_such_in_every_command(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    num_classes, end, said = WITH_PROBABILITIES[kind]
    plain, model = Net(num_classes).eval(), Ends(num_classes, end).eval()
    if kind == "one logit in [0, 1]":
        plain = Ends(num_classes, two_logits).eval()
        for each in (plain, model):
            nn.init.constant_(each.head.bias, 0.5 - 0.1)
            nn.init.constant_(each.head.weight, 0.1)
    expected = probabilities(plain)
    np.testing.assert_allclose(probabilities(model, quiet=False), expected, atol=1e-5)
    line = capsys.readouterr().err
    assert (said in line) if said else ("the model returns" not in line)
    result = adapted(model, method="shot+ancon-auto", quiet=False)
    line = capsys.readouterr().err
    assert (said in line) if said else ("the model returns" not in line)
    of_logits = adapted(plain, method="shot+ancon-auto")
    np.testing.assert_allclose(probabilities(result), probabilities(of_logits), atol=0.02)
    how = {**PREPROCESSING, "workers": 0}
    indicators = [assess(each, pixels(), **how).class_prior for each in (plain, model)]
    np.testing.assert_allclose(*indicators)
    with pytest.raises(UserError, match="equal on all 40 images"):
        certify(plain, model, pixels(), **how)


@pytest.mark.filterwarnings("ignore:the model returns")
@pytest.mark.parametrize("method", ["tent", "roid", "ancon-auto"])
def test_a_stream_of_probabilities_learns_as_from_logits(method: Any) -> None:
    batch = torch.rand(8, 3, 32, 32)
    for num_classes, end in ((4, nn.Softmax(1)), (1, nn.Sigmoid())):
        expected = online(Net(num_classes).eval(), method=method)(batch)
        outputs = online(Ends(num_classes, end).eval(), method=method)(batch)
        assert outputs.shape == expected.shape
        if num_classes == 1:
            torch.testing.assert_close(outputs, expected, rtol=1e-3, atol=1e-4)
        else:
            torch.testing.assert_close(outputs.softmax(1), expected.softmax(1), rtol=1e-3, atol=1e-4)


# Several labels for an image


def of_transformers() -> nn.Module:
    options = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic", "num_labels": 4}
    config = transformers.ResNetConfig(**options, problem_type="multi_label_classification")
    return transformers.ResNetForImageClassification(config).eval()


@pytest.mark.parametrize(
    ("build", "advice"),
    [
        (of_transformers, "set model.config.problem_type = 'single_label_classification'"),
        (lambda: Ends(4, nn.Sigmoid()).eval(), "pass a module that returns what enters the sigmoid"),
        (lambda: Ends(4, torch.sigmoid).eval(), "pass a module that returns what enters the sigmoid"),
    ],
    ids=["transformers", "sigmoid", "functional sigmoid"],
)
def test_a_multi_label_classifier_gets_a_line(build: Callable[[], nn.Module], advice: str) -> None:
    model = build()
    how = {**PREPROCESSING, "workers": 0}
    for call in (
        lambda: adapted(model),
        lambda: adapted(model, method="tent"),
        lambda: probabilities(model),
        lambda: assess(model, pixels(), **how),
        lambda: certify(model, model, pixels(), **how),
        lambda: online(model, method="roid")(torch.rand(8, 3, 32, 32)),
    ):
        with pytest.raises(UserError, match=f"multi-label.*Classes exclude each other here.*{advice}"):
            call()
    if isinstance(model, Ends):  # the advice
        adapted(Net(4).eval())
    else:
        model.config.problem_type = "single_label_classification"
        adapted(model)


# Parameters that learn


class Probe(Net):
    def __init__(self, context: Callable[[], Any] = torch.no_grad) -> None:
        super().__init__()
        self.context = context

    def forward(self, images: Tensor) -> Any:
        with self.context():
            features = self.body(images)
        return self.head(features)


class NeverLearns(Net):
    @torch.no_grad()
    def forward(self, images: Tensor) -> Any:
        return super().forward(images)


def frozen() -> nn.Module:
    return Probe().requires_grad_(False)


@pytest.mark.parametrize(
    ("build", "settings", "advice"),
    [
        (Probe, {}, "Pass `adapted=all`"),
        (Probe, {"adapted": "norm-affine"}, "Pass `adapted=all`"),
        (lambda: Probe(torch.inference_mode), {}, "Remove that context"),
        (lambda: Probe(torch.inference_mode), {"adapted": "all"}, "Remove that context"),
        (NeverLearns, {}, "Remove that context"),
        (NeverLearns, {"adapted": "all"}, "Remove that context"),
    ],
)
def test_a_loss_without_a_gradient_gets_a_line(
    build: Any, settings: dict[str, Any], advice: str, tmp_path: Path
) -> None:
    model = build().eval()
    for method in ("ancon-auto", "shot"):
        with pytest.raises(UserError, match=rf"no parameter that learns with `adapted=.*` reaches the loss.*{advice}"):
            adapted(model, method=method, log=str(tmp_path / "run"), **settings)
    assert not (tmp_path / "run").exists()
    if advice.startswith("Pass"):
        before = copy.deepcopy(model.state_dict())
        result = adapted(model, adapted="all")
        assert not torch.equal(result.head.weight, before["head.weight"])


def test_all_frozen_leads_on() -> None:
    for settings, advice in (({}, "adapted=all-but-head"), ({"adapted": "all-but-head"}, "Pass `adapted=all`")):
        with pytest.raises(UserError, match=advice):
            adapted(frozen(), **settings)
    adapted(frozen(), adapted="all")


def test_a_model_that_is_its_head_alone_learns_it(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4))
    assert not torch.equal(adapted(model, method="ancon", quiet=False)[2].weight, model[2].weight)
    assert "the head has all parameters of the model; it learns" in capsys.readouterr().err


# Two heads whose mean are the logits


class Distilled(Net):
    def __init__(self, same_input: bool = True) -> None:
        super().__init__()
        self.head_dist, self.same_input = nn.Linear(8, 4), same_input

    def forward(self, images: Tensor) -> Any:
        features = self.body(images)
        other = features if self.same_input else self.body(images.flip(-1) + 0.1)
        return (self.head(features) + self.head_dist(other)) / 2


@pytest.mark.parametrize("same_input", [True, False])
@pytest.mark.parametrize("method", ["shot", "nrc", "aad", "shot+ancon-auto"])
def test_two_heads_adapt_by_methods_that_need_the_head(method: str, same_input: bool) -> None:
    model = Distilled(same_input).eval()
    result = adapted(model, method=method)
    assert type(result) is Distilled
    for name in ("head", "head_dist"):
        assert torch.equal(result.get_submodule(name).weight, model.get_submodule(name).weight)
    assert not torch.equal(result.body[0].weight, model.body[0].weight)


def test_both_heads_of_a_distilled_transformer_are_the_head(tmp_path: Path) -> None:
    torch.manual_seed(0)
    options = {"img_size": 32, "patch_size": 16, "embed_dim": 24, "depth": 1, "num_heads": 2, "num_classes": 4}
    model = timm.models.deit.VisionTransformerDistilled(**options).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.05)
    images = torch.rand(4, 3, 32, 32)
    classifier = as_classifier(model, probe=images).eval()
    assert (classifier.head_name, classifier.features_dim) == ("head,head_dist", 48)
    logits, features = classifier.predict(images)
    torch.testing.assert_close(classifier.head(features), logits)
    assert as_classifier(model, head="head,head_dist", probe=images).head_name == classifier.head_name
    model.zero_grad()
    settings = {**FAST, **PREPROCESSING, "workers": 0, "method": "nrc", "log": str(tmp_path / "run")}
    adapt(model, pixels(), **settings)
    assert predict(model, pixels(), checkpoint=str(tmp_path / "run")).probabilities.shape == (40, 4)
