"""Models as people bring them: what comes back is of the same class, and what cannot be adapted gets one line."""

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune, spectral_norm, weight_norm

from tllib_ancon import adapt, assess, online, predict
from tllib_ancon.models.classifier import shot_classifier
from tllib_ancon.models.networks import create_backbone

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
