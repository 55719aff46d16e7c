from __future__ import annotations

import copy
import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.domains_on_disk import write_domains
from tests.toolkit.conftest import toolkit  # noqa: F401 (a fixture)
from tllib_ancon.config import PretrainConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.domains import open_domain
from tllib_ancon.data.transforms import TransformOptions, evaluation_transform, train_transform
from tllib_ancon.errors import UserError
from tllib_ancon.models.backbones import Backbone, SmallCNN, create_backbone
from tllib_ancon.models.checkpoints import recognize, start_model
from tllib_ancon.models.preprocessing import Preprocessing
from tllib_ancon.models.state_dicts import load_state_dict
from tllib_ancon.toolkit.interface import Toolkit
from tllib_ancon.training.adversarial import (
    AdversarialTraining,
    create_cdan,
    create_mdd,
)
from tllib_ancon.training.inputs import recorder
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.run_directory import RunDirectory

TRANSFORM = TransformOptions(
    "res.", "res.", resize_size=16, horizontal_flip=False, norm_mean=(0.5,) * 3, norm_std=(0.5,) * 3
)
SMALL = {"epochs": 2, "iters_per_epoch": 3, "batch_size": 4, "bottleneck_dim": 8, "trade_off": 0.7, "workers": 0}
CDAN, MDD = (PretrainConfig(method="cdan", **SMALL), create_cdan), (PretrainConfig(method="mdd", **SMALL), create_mdd)
RANDOMIZED = (PretrainConfig(method="cdan", **SMALL, randomized=True, randomized_dim=16, entropy=True), create_cdan)
METHODS = pytest.mark.parametrize("method", [CDAN, MDD, RANDOMIZED], ids=["cdan", "mdd", "randomized"])


@pytest.fixture(scope="module")
def domains(tmp_path_factory: pytest.TempPathFactory) -> tuple[Domain, Domain]:
    root = write_domains(tmp_path_factory.mktemp("domains"))
    return open_domain(root, "ImageList", ["bright"]), open_domain(root, "ImageList", ["dark"])


def small_backbone() -> Backbone:
    return Backbone(SmallCNN(), False, Preprocessing.centred(3), pretrained=False)


def training(
    toolkit: Toolkit,  # noqa: F811
    method: tuple[Any, Any],
    domains: tuple[Domain, Domain],
    log: Path,
    backbone: Backbone | None = None,
    kind: type[AdversarialTraining] = AdversarialTraining,
) -> AdversarialTraining:
    options, create = method
    torch.manual_seed(0)
    network = create(toolkit, backbone or small_backbone(), 3, options)
    run = RunDirectory(log)
    run.begin({})
    source, target = domains
    transforms = train_transform(TRANSFORM), evaluation_transform(TRANSFORM)
    return kind(network, source, target, options, run, *transforms, recorder(target), Progress(quiet=True))


def test_defaults_are_those_of_tllibs_scripts() -> None:
    cdan, mdd = PretrainConfig(method="cdan").to_dict(), PretrainConfig(method="mdd").to_dict()
    common = {"epochs": 20, "iters_per_epoch": 1000, "batch_size": 32, "trade_off": 1.0}
    common |= {"lr_decay": 0.75, "momentum": 0.9}
    own_cdan = {"lr": 0.01, "lr_gamma": 1e-3, "weight_decay": 1e-3, "bottleneck_dim": 256}
    own_cdan |= {"randomized": False, "randomized_dim": 1024, "entropy": False}
    own_mdd = {"lr": 0.004, "lr_gamma": 2e-4, "weight_decay": 5e-4, "bottleneck_dim": 1024, "margin": 4.0}
    assert (common | own_cdan).items() <= cdan.items()
    assert (common | own_mdd).items() <= mdd.items()


def naive_training(run: AdversarialTraining, options: Any) -> dict[str, torch.Tensor]:
    """The loop of TLLib's cdan.py and mdd.py on the batches that ``run`` would see, from its untrained network."""
    model, adversary = copy.deepcopy(run.model), copy.deepcopy(run.adversary)
    rates = [(group["params"], group["lr"]) for group in model.get_parameters()]
    rates += [(list(adversary.parameters()), 1.0)] if list(adversary.parameters()) else []
    optimizer = torch.optim.SGD(
        [{"params": parameters} for parameters, _ in rates],
        lr=0.0,
        momentum=options.momentum,
        weight_decay=options.weight_decay,
        nesterov=True,
    )
    count = 0
    for epoch in range(options.epochs):
        for loader in run.loaders:
            loader.sampler.epoch = epoch
        model.train()
        for (x_s, labels), (_, x_t) in zip(*run.loaders, strict=True):
            rate = options.lr * (1 + options.lr_gamma * count) ** -options.lr_decay
            for group, (_, multiplier) in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * multiplier
            y, f = model(torch.cat([x_s, x_t]))
            half = len(x_s)
            loss = nn.functional.cross_entropy(y[:half], labels)
            loss = loss + options.trade_off * adversary(y[:half], f[:half], y[half:], f[half:])
            if hasattr(model, "step"):  # mdd.py; in cdan.py the layer counts by itself
                model.step()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            count += 1
    return model.state_dict()


@METHODS
def test_training_is_that_of_tllibs_scripts(toolkit, method, domains, tmp_path) -> None:  # noqa: F811
    run = training(toolkit, method, domains, tmp_path)
    torch.manual_seed(1)  # of MDD's dropout
    expected = naive_training(run, method[0])
    torch.manual_seed(1)
    run()
    trained = load_state_dict(tmp_path / "checkpoints" / "latest.pth")
    assert trained.keys() == expected.keys()
    for name in trained:
        torch.testing.assert_close(trained[name], expected[name], rtol=1e-4, atol=1e-5, msg=name)


@METHODS
def test_nothing_is_selected_and_the_state_is_gone(toolkit, method, domains, tmp_path) -> None:  # noqa: F811
    result = training(toolkit, method, domains, tmp_path)()
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"latest.pth"}
    assert result["checkpoint"] == "latest.pth"
    assert result["selected"] == result["last"]
    assert result["last"]["epoch"] == 2
    assert {"accuracy", "infomax", "transfer_loss", "loss"} <= result["last"].keys()
    assert ("domain_accuracy" in result["last"]) == (method[0].method == "cdan")


@METHODS
def test_labels_of_the_target_change_nothing(toolkit, method, domains, tmp_path) -> None:  # noqa: F811
    source, target = domains
    relabelled = replace(target, labels=np.zeros(len(target), dtype=int))
    weights = []
    for number, domain in enumerate((target, relabelled, target.without_labels())):
        log = tmp_path / str(number)
        log.mkdir()
        result = training(toolkit, method, (source, domain), log)()
        assert ("accuracy" in result["last"]) == domain.labelled
        weights.append(load_state_dict(log / "checkpoints" / "latest.pth"))
    for other in weights[1:]:
        assert all(torch.equal(weights[0][name], other[name]) for name in other)


def test_training_never_sees_a_label_of_the_target(domains, tmp_path) -> None:
    from tllib_ancon.toolkit import find

    run = training(find("dalib"), CDAN, domains, tmp_path)
    assert run.loaders[1].dataset.domain.labels is None
    assert run.target_loader.dataset.domain.labels is None


class CutOff(Exception):
    pass


class CutsOff(AdversarialTraining):
    """Ends after its first epoch, in the middle of the second."""

    def _step(self, batch: Any) -> Any:
        if self.metrics:
            raise CutOff
        return super()._step(batch)


@METHODS
def test_a_run_that_was_cut_off_ends_as_if_it_had_not_been(toolkit, method, domains, tmp_path) -> None:  # noqa: F811
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for log in (whole, cut):
        log.mkdir()
    expected = training(toolkit, method, domains, whole)()
    with pytest.raises(CutOff):
        training(toolkit, method, domains, cut, kind=CutsOff)()
    resumed = training(toolkit, method, domains, cut)
    torch.manual_seed(5)
    result = resumed()
    assert resumed.reversal.iterations == 6
    first, second = (load_state_dict(log / "checkpoints" / "latest.pth") for log in (whole, cut))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert result["last"]["infomax"] == expected["last"]["infomax"]


def own_classes(toolkit: Toolkit, name: str, backbone: nn.Module) -> nn.Module:  # noqa: F811
    """The classifier as the toolkit's own scripts build it."""
    if toolkit.name == "dalib":
        from dalib.adaptation import cdan, mdd

        if name == "cdan":
            return cdan.ImageClassifier(backbone, 3, 8)
        return mdd.ImageClassifier(backbone, 3, 8, 8)
    from tllib.alignment import cdan, mdd

    if name == "cdan":
        return cdan.ImageClassifier(backbone, 3, bottleneck_dim=8)
    return mdd.ImageClassifier(backbone, 3, bottleneck_dim=8, width=8)


@pytest.mark.parametrize("method", [CDAN, MDD], ids=["cdan", "mdd"])
def test_the_toolkit_reads_the_checkpoint_back(toolkit, method, domains, tmp_path) -> None:  # noqa: F811
    """And so does this package, with the same logits."""
    options = dataclasses.replace(method[0], epochs=1, iters_per_epoch=1)
    network = toolkit.create_backbone("resnet18")
    backbone = Backbone(network, network.pools, Preprocessing.centred(3), pretrained=False)
    training(toolkit, (options, method[1]), domains, tmp_path, backbone)()
    state = load_state_dict(tmp_path / "checkpoints" / "latest.pth")
    theirs = own_classes(toolkit, options.method, toolkit.create_backbone("resnet18"))
    theirs.load_state_dict(state)
    ours = start_model(recognize(state), create_backbone("resnet18", pretrained=False).network, 3).eval()
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    logits = theirs.eval()(images)
    logits = logits[0] if isinstance(logits, tuple) else logits
    torch.testing.assert_close(ours(images), logits)


def test_a_domain_smaller_than_a_batch(domains, tmp_path) -> None:
    from tllib_ancon.toolkit import find

    source, target = domains
    with pytest.raises(UserError, match="domain dark: 3 images to train on are fewer than one batch of 4"):
        training(find("dalib"), CDAN, (source, target.subset(range(3))), tmp_path)


def test_an_unlabelled_source(domains, tmp_path) -> None:
    from tllib_ancon.toolkit import find

    source, target = domains
    with pytest.raises(UserError, match="no labels"):
        training(find("dalib"), CDAN, (source.without_labels(), target), tmp_path)


@pytest.mark.parametrize("method", [CDAN, MDD], ids=["cdan", "mdd"])
def test_a_loss_that_stops_being_finite(method, domains, tmp_path) -> None:
    from tllib_ancon.toolkit import find

    options = method[0].replace(lr=1e30)
    with pytest.raises(UserError, match="not finite at epoch 1, step 2"):
        training(find("dalib"), (options, method[1]), domains, tmp_path)()


@pytest.mark.parametrize("name", ["epochs", "iters_per_epoch", "batch_size", "bottleneck_dim"])
def test_sizes_are_positive(name: str) -> None:
    with pytest.raises(UserError, match=f"`{name}` must be at least 1.*, got 0"):
        PretrainConfig(method="cdan", **{name: 0})
