"""A model of any kind adapts to any inputs, comes back as the caller's own, and every function reads its run."""

import copy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import timm
import torch
from torch import nn
from torch.nn.utils import prune, spectral_norm, weight_norm
from torchvision import models

from tests.support.killable import differences
from tests.support.networks import (
    IMAGES,
    PIXELS,
    PREPROCESSING,
    QUICK,
    Net,
    Returns,
    normalised,
    state_of,
    transformer,
)
from tests.support.refusals import one_line
from tllib_ancon import adapt, online, predict
from tllib_ancon.outputs import from_one_logit

pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")


@dataclass(frozen=True)
class Kind:
    """A model and what it is called on; ``like`` is the kind that learns the same weights."""

    build: Callable[[], nn.Module]
    head: str = "head"
    like: str | None = None
    inputs: Any = None
    output: Any = None
    settings: dict[str, Any] = field(default_factory=dict)


# Wrapped and compiled models


def compiled(model):
    return torch.compile(model, backend="eager")


WRAPPED = {
    "compiled": lambda: compiled(Net()),
    "data parallel": lambda: nn.DataParallel(Net()),
}


# Models that hold tensors that are no leaves


class Remembers(Net):
    """It stores features of the last call, as many research models do."""

    def forward(self, images):
        self.features = self.body(images)
        return self.head(self.features)


def with_head(change):
    model = Net()
    model.head = change(model.head)
    model(torch.rand(2, 3, 32, 32))
    return model


def remembering():
    model = Remembers().eval()
    model(torch.rand(2, 3, 32, 32))
    return model


PRUNED = partial(prune.l1_unstructured, name="weight", amount=0.3)
REPARAMETRISED = {"weight_norm": weight_norm, "spectral_norm": spectral_norm, "pruned": PRUNED}


# Heads and inputs


def seeded(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*(layer() for layer in layers))


def series():
    convolution = partial(nn.Conv1d, 3, 8, 5)
    head = partial(nn.Linear, 8 * 16, 4)
    return seeded(convolution, partial(nn.BatchNorm1d, 8), nn.ReLU, nn.Flatten, head)


def drawn(*shape):
    return torch.randn(IMAGES, *shape, generator=torch.Generator().manual_seed(0))


SAME = 1e-4 if torch.cuda.is_available() else 1e-5
WHOLE = {"crop_fraction": 1.0}
NETWORKS = {
    "plain": Kind(Net),
    "one logit": Kind(lambda: Net(1), output=from_one_logit),
    "torchvision": Kind(partial(models.shufflenet_v2_x0_5, num_classes=4), "fc"),
    "timm, convolutions": Kind(partial(timm.create_model, "test_resnet", num_classes=4), "fc", settings=WHOLE),
    "timm, transformer": Kind(
        partial(timm.create_model, "test_vit", img_size=32, patch_size=8, num_classes=4), settings=WHOLE
    ),
    **{name: Kind(build, like="plain") for name, build in WRAPPED.items()},
    **{name: Kind(partial(with_head, change)) for name, change in REPARAMETRISED.items()},
    "remembers features": Kind(remembering, like="plain"),
    "features, logits": Kind(partial(Returns, lambda features, logits: (features, logits)), like="plain", output=1),
    "transformers": Kind(transformer, "classifier"),
    "series": Kind(series, "4", inputs=drawn(3, 20)),
}


def how(kind):
    preprocessing = PREPROCESSING if kind.inputs is None else {}
    return {"workers": 0, "output": kind.output, **preprocessing, **kind.settings}


def expected_probabilities(model, kind):
    with torch.no_grad():
        output = model(normalised() if kind.inputs is None else kind.inputs)
    logits = getattr(output, "logits", output)
    if logits.shape[1] == 1:
        logits = torch.cat([torch.zeros_like(logits), logits], 1)
    return logits.softmax(1).numpy()


def adapted(kind, model, **settings):
    inputs = PIXELS if kind.inputs is None else kind.inputs
    return adapt(model, inputs, **{**QUICK, **how(kind), "method": "shot", **settings})


@cache
def reference(name):
    """State and predictions of an adapted model of this kind."""
    model = adapted(NETWORKS[name], NETWORKS[name].build()).model
    return state_of(model), expected_probabilities(model, NETWORKS[name])


@pytest.mark.parametrize("name", NETWORKS)
def test_a_model_comes_back_as_its_own_and_every_function_reads_it_and_its_run(name, tmp_path):
    torch._dynamo.reset()
    kind = NETWORKS[name]
    inputs = PIXELS if kind.inputs is None else kind.inputs
    model = kind.build().train()
    next(model.children()).eval()
    modes = [part.training for part in model.modules()]
    before = state_of(model)
    result = adapted(kind, model, log=tmp_path)
    after = state_of(result.model)
    assert differences(before, state_of(model)) == []
    assert type(result.model) is type(model)
    assert [*result.model.state_dict()] == [*model.state_dict()]
    copy.deepcopy(result.model)  # it holds no graph
    changed = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert changed
    assert not any(name.startswith(kind.head) for name in changed if "weight_u" not in name)
    if kind.like is None:
        expected = expected_probabilities(result.model, kind)
        start = expected_probabilities(kind.build().eval(), kind)
        assert np.abs(expected - start).max() > 2 * SAME
    else:
        state, expected = reference(kind.like)
        torch.testing.assert_close(after, state)
    for network, checkpoint in ((result.model, None), (kind.build(), str(tmp_path))):
        predicted = predict(network, inputs, checkpoint=checkpoint, **how(kind))
        np.testing.assert_allclose(predicted.probabilities, expected, atol=SAME)
    assert [part.training for part in model.modules()] == modes


@pytest.mark.parametrize("name", [*WRAPPED, "remembers features", *REPARAMETRISED])
def test_a_stream_takes_any_of_them_and_all_parameters_may_learn(name):
    torch._dynamo.reset()
    kind = NETWORKS[name]
    model = kind.build().eval()
    device = next(model.parameters()).device  # data parallel moves a model to a GPU
    batch = normalised(PIXELS[:8]).to(device)
    outputs = online(model, method="tent")(batch)
    if kind.like is not None:
        torch.testing.assert_close(outputs, online(Net().to(device), method="tent")(batch))
    result = adapted(kind, model, adapted="all").model
    assert differences(state_of(model), state_of(result))
    if name == "weight_norm":
        head = result.head.cpu()
        direction = head.weight_v / head.weight_v.norm(dim=1, keepdim=True)
        torch.testing.assert_close(head.weight, head.weight_g * direction)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_another_type_come_back_in_it(kind):
    model = Net().to(kind)
    result = adapted(NETWORKS["plain"], model).model
    in_float32 = adapted(NETWORKS["plain"], model.float()).model
    assert differences(state_of(in_float32.to(kind)), state_of(result)) == []
    assert predict(result, PIXELS, **PREPROCESSING).probabilities.shape == (IMAGES, 4)


def test_a_model_of_ddp_comes_back_in_ddp(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(Net())
        result = adapted(NETWORKS["plain"], model).model
        assert type(result) is type(model)
        assert [*result.state_dict()] == [*model.state_dict()]
    finally:
        torch.distributed.destroy_process_group()


def test_a_torchscript_program_predicts_and_does_not_learn():
    model = seeded(partial(nn.Conv2d, 3, 4, 32), nn.Flatten)
    scripted = torch.jit.script(model.eval())
    for program in (scripted, torch.jit.freeze(scripted)):
        found = predict(program, PIXELS, **PREPROCESSING).probabilities
        expected = program(normalised()).softmax(1).detach()
        np.testing.assert_allclose(found, expected, atol=1e-6)
        with one_line(
            "^a program of TorchScript predicts and does not learn; pass the torch.nn.Module that it was made from$"
        ):
            adapted(NETWORKS["plain"], program)


def test_a_model_that_cannot_be_copied_gets_a_line():
    model = Net()
    model.file = (value for value in [])
    with one_line(r"cannot be copied.*generator.*remove the attribute"):
        adapted(NETWORKS["plain"], model)
    del model.file  # the advice
    adapted(NETWORKS["plain"], model)


LOADS = """
import sys, torch
model = torch.load(sys.argv[1], weights_only=False)
with torch.no_grad():
    torch.save(model(torch.load(sys.argv[2])), sys.argv[3])
assert not [name for name in sys.modules if name.startswith("tllib_ancon")]
"""


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_the_result_loads_without_this_package(precision, tmp_path):
    body = partial(nn.Conv2d, 3, 8, 3), partial(nn.BatchNorm2d, 8)
    model = seeded(*body, nn.Flatten, partial(nn.Linear, 7200, 4))
    result = adapted(NETWORKS["plain"], model.eval(), mixed_precision=precision).model
    images = normalised()[:4]
    files = [str(tmp_path / name) for name in ("model", "images", "outputs")]
    torch.save(result, files[0])
    torch.save(images, files[1])
    subprocess.run([sys.executable, "-c", LOADS, *files], check=True, cwd=tmp_path, env={"OMP_NUM_THREADS": "1"})
    torch.testing.assert_close(torch.load(files[2]), result(images))
