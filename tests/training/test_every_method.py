"""What holds for every method in the loop, also on the most degenerate data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.domains_on_disk import write_domain
from tests.self_training.neighborhoods import few_neighbors
from tllib_ancon import methods
from tllib_ancon.config import AdaptConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.open import open_domain
from tllib_ancon.models.classifier import Classifier, shot_classifier
from tllib_ancon.training.adapting import Adaptation
from tllib_ancon.training.inputs import Transforms
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.run import RunDirectory

CLASSES, WIDTH, SIDE = 3, 4, 8


class ConstantEncoder(nn.Module):
    """The same features for every image."""

    out_features = WIDTH

    def forward(self, images: Tensor) -> Tensor:
        return images.new_ones(len(images), WIDTH)


class Encoder(nn.Sequential):
    out_features = WIDTH

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, WIDTH, 3), nn.BatchNorm2d(WIDTH), nn.ReLU())


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Domain:
    root = tmp_path_factory.mktemp("fake")
    write_domain(root, "fake", 24, seed=0, side=SIDE)
    return open_domain(root, "ImageList", ["fake"])


def classifier(encoder: nn.Module) -> Classifier:
    return shot_classifier(encoder, CLASSES, bottleneck_dim=6, finetune=False)


def adapt(model: Classifier, target: Domain, folder: Path, method: str, **options: object) -> dict[str, Tensor]:
    """The model after one epoch."""
    from torchvision.transforms.functional import to_tensor

    run = RunDirectory(folder)
    run.begin({})
    few = few_neighbors(method, 2, 2)
    given = AdaptConfig(method=method, options=few, epochs=1, batch_size=6, workers=0, **options)
    Adaptation(model, target, given, run, Transforms(to_tensor, to_tensor), progress=Progress(quiet=True))()
    return torch.load(folder / "checkpoints" / "latest.pth", weights_only=True)


@pytest.mark.parametrize("method", methods.names())
def test_one_epoch_on_a_constant_encoder(target: Domain, tmp_path: Path, method: str) -> None:
    torch.manual_seed(0)
    adapted = adapt(classifier(ConstantEncoder()), target, tmp_path / "run", method)
    assert all(tensor.isfinite().all() for tensor in adapted.values())


@pytest.mark.parametrize("method", methods.names())
def test_labels_of_the_target_do_not_matter(target: Domain, tmp_path: Path, method: str) -> None:
    permuted = replace(target, labels=np.random.default_rng(1).permutation(target.labels))
    results = []
    for name, domain in (("true", target), ("permuted", permuted)):
        torch.manual_seed(0)
        results.append(adapt(classifier(Encoder()), domain, tmp_path / name, method))
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


ENCODER = {"backbone.0.weight", "backbone.0.bias"}
BOTTLENECK = {"bottleneck.0.weight", "bottleneck.0.bias"}
AFFINE = {f"{part}.1.{name}" for part in ("backbone", "bottleneck") for name in ("weight", "bias")}
HEAD = {"head.bias", "head.parametrizations.weight.original0", "head.parametrizations.weight.original1"}
WITHOUT_GRADIENT = {"backbone.0.bias", "bottleneck.0.bias"}
"""Batch-norm takes the mean away that these would add."""
ADAPTED = {
    "all": ENCODER | BOTTLENECK | AFFINE | HEAD,
    "all-but-head": ENCODER | BOTTLENECK | AFFINE,
    "norm-affine": AFFINE,
}


@pytest.mark.parametrize("adapted", ADAPTED)
def test_which_parameters_change(target: Domain, tmp_path: Path, adapted: str) -> None:
    torch.manual_seed(0)
    model = classifier(Encoder())
    parameters = {name for name, _ in model.named_parameters()}
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    after = adapt(model, target, tmp_path / "run", "ancon", adapted=adapted)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed & parameters <= ADAPTED[adapted]
    assert changed >= ADAPTED[adapted] - WITHOUT_GRADIENT
    statistics = {f"{part}.1.running_{name}" for part in ("backbone", "bottleneck") for name in ("mean", "var")}
    assert statistics <= changed
