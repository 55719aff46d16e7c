"""Exported files compute what the classifier computes, for any batch, and say what their numbers mean."""

import json
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from safetensors import safe_open
from torch import Tensor, nn

from tests.models.test_any_network import small_network
from tests.refusals import one_line
from tllib_ancon.models import as_classifier
from tllib_ancon.models.bottleneck import shot_classifier
from tllib_ancon.models.networks import create_backbone
from tllib_ancon.training.export import METADATA, _content_of

CLASSES = ["Büro", "cat", "dog", "a, b", '"']
MEAN = (0.5, 0.25, 0.125)
STD = (1.0, 0.5, 0.75)
EXPECTED = {"classes": CLASSES, "mean": list(MEAN), "std": list(STD), "image_size": 32}
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit", "ignore::DeprecationWarning", "ignore::FutureWarning")


def shot():
    torch.manual_seed(0)
    return shot_classifier(create_backbone("small_cnn"), 5, 8)


def own():
    return as_classifier(small_network(), probe=torch.zeros(2, 3, 32, 32))


def vit():
    torch.manual_seed(0)
    return as_classifier(timm.create_model("test_vit", num_classes=5, img_size=32, depth=1))


def trained(build):
    """With batch statistics, half frozen, and left in training mode."""
    classifier = build().train()
    for _ in range(3):
        classifier(torch.randn(8, 3, 32, 32) + 1)
    next(classifier.parameters()).requires_grad_(False)
    return classifier


Run = tuple[Callable[[Tensor], Tensor], dict[str, Any]]


def run_onnx(path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnx]'")
    session = onnxruntime.InferenceSession(path)
    assert [value.name for value in (*session.get_inputs(), *session.get_outputs())] == ["images", "logits"]
    metadata = session.get_modelmeta().custom_metadata_map

    def run(images):
        (logits,) = session.run(None, {"images": images.numpy()})
        return torch.from_numpy(logits)

    return run, {name: json.loads(metadata[name]) for name in EXPECTED}


def run_program(path):
    extra = {METADATA: ""}
    program = torch.export.load(path, extra_files=extra)
    return program.module(), json.loads(extra[METADATA])


RUNNERS = {"onnx": run_onnx, "torch-export": run_program}


@pytest.mark.parametrize(("form", "build"), [("onnx", vit), ("torch-export", own), ("torch-export", shot)])
def test_an_exported_program_gives_the_same_logits_for_any_batch(form, build, tmp_path):
    if form == "onnx":
        pytest.importorskip("onnxscript", reason="onnxscript is not installed: pip install '.[onnx]'")
    classifier = trained(build)
    path = tmp_path / "model.bin"
    before = {name: tensor.clone() for name, tensor in classifier.state_dict().items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path.write_bytes(_content_of(classifier, form, CLASSES, MEAN, STD, 32))
    assert classifier.training
    run, metadata = RUNNERS[form](path)
    assert metadata == EXPECTED
    for batch in (1, 2, 5):
        images = torch.randn(batch, 3, 32, 32, generator=torch.Generator().manual_seed(batch))
        with torch.no_grad():
            torch.testing.assert_close(run(images), classifier.eval()(images), rtol=0, atol=1e-4)
    assert all(torch.equal(tensor, before[name]) for name, tensor in classifier.state_dict().items())
    assert classifier.predict(images)[1].shape == (5, classifier.features_dim)


def test_exported_weights_load_strictly_into_the_plain_network(tmp_path):
    classifier = trained(vit)
    path = tmp_path / "model"
    path.write_bytes(_content_of(classifier, "safetensors", CLASSES, MEAN, STD, 32))
    plain = timm.create_model("test_vit", num_classes=5, img_size=32, depth=1)
    with safe_open(path, "pt") as file:
        metadata, state = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    assert {key: json.loads(value) for key, value in metadata.items()} == EXPECTED
    plain.load_state_dict(state)
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(plain.eval()(images), classifier.eval()(images))


class Branching(nn.Module):
    """What no exporter can follow: a branch on the pixels."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 5)

    def forward(self, images):
        means = images.mean((2, 3))
        if images.sum().item() > 1:
            means = 2 * means
        return self.fc(means)


def test_a_network_that_cannot_be_exported_says_so_in_one_line():
    with one_line(r"cannot be exported by torch-export") as error:
        _content_of(as_classifier(Branching()), "torch-export", CLASSES, MEAN, STD, 32)
    assert "\n" not in str(error.value)
