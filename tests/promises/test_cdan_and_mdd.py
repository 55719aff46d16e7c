"""Training against a loss between domains is that of TLLib's scripts, and the target's labels change nothing."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from tests.support.killable import differences
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.data.open import open_domain
from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.models.checkpoints import load_state_dict
from tllib_ancon.models.networks import create_backbone
from tllib_ancon.opening.pretraining import Pretraining
from tllib_ancon.opening.transforms import Transforms
from tllib_ancon.training.pretrain import _adversarial

TRANSFORM = Preprocessing(
    train_resizing="res.",
    val_resizing="res.",
    image_size=16,
    horizontal_flip=False,
    mean=(0.5,) * 3,
    std=(0.5,) * 3,
)
SMALL = {"epochs": 2, "iters_per_epoch": 3, "batch_size": 4, "bottleneck_dim": 8, "trade_off": 0.7, "workers": 0}
CDAN, MDD = (PretrainConfig(method=method, **SMALL) for method in ("cdan", "mdd"))
RANDOMIZED = PretrainConfig(method="cdan", **SMALL, randomized=True, randomized_dim=16, entropy=True)
METHODS = pytest.mark.parametrize("method", [CDAN, MDD, RANDOMIZED], ids=["cdan", "mdd", "randomized"])


@pytest.fixture
def both(domains):
    return [open_domain(domains, "ImageList", [name]) for name in ("bright", "dark")]


def training(toolkit, settings, domains, log):
    torch.manual_seed(0)
    transforms = Transforms(TRANSFORM.for_training(), TRANSFORM.for_evaluation())
    source, target = domains
    probe = torch.zeros(2, 3, 16, 16)
    opened = Pretraining(
        settings.replace(log=str(log), quiet=True), create_backbone("small_cnn"), source, transforms, probe, target
    )
    return _adversarial(opened, toolkit)


def latest(log):
    return dict(load_state_dict(log / "checkpoints" / "latest.pth"))


def naive_training(run, options):
    """The loop of TLLib's cdan.py and mdd.py on the batches that ``run`` would see, from its untrained network."""
    model = copy.deepcopy(run.network)
    adversary = copy.deepcopy(run.objective.adversary)
    rates = [(group["params"], group["lr"]) for group in model.get_parameters()]
    rates += [(list(adversary.parameters()), 1.0)] if list(adversary.parameters()) else []
    groups = [{"params": parameters} for parameters, _ in rates]
    momentum = {"momentum": options.momentum, "nesterov": True}
    optimizer = torch.optim.SGD(groups, lr=0.0, weight_decay=options.weight_decay, **momentum)
    count = 0
    labels = torch.as_tensor(run.loaders[0].dataset.domain.labels)
    for epoch in range(options.epochs):
        for loader in run.loaders:
            loader.sampler.epoch = epoch
        model.train()
        for (indices, x_s), (_, x_t) in zip(*run.loaders, strict=True):
            rate = options.lr * (1 + options.lr_gamma * count) ** -options.lr_decay
            for group, (_, multiplier) in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * multiplier
            y, f = model(torch.cat([x_s, x_t]))
            half = len(x_s)
            loss = nn.functional.cross_entropy(y[:half], labels[indices])
            transfer_loss = adversary(y[:half], f[:half], y[half:], f[half:])
            loss = loss + options.trade_off * transfer_loss
            if hasattr(model, "step"):  # mdd.py; in cdan.py the layer counts by itself
                model.step()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            count += 1
    return model.state_dict()


@METHODS
def test_training_is_that_of_tllibs_scripts_and_selects_nothing(toolkit, method, both, tmp_path):
    run = training(toolkit, method, both, tmp_path)
    torch.manual_seed(1)  # of MDD's dropout
    expected = naive_training(run, method)
    torch.manual_seed(1)
    result = run.fit({})
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"latest.pth"}
    torch.testing.assert_close(latest(tmp_path), dict(expected), rtol=1e-4, atol=1e-5)
    assert result["checkpoint"] == "latest.pth"
    assert result["last"]["epoch"] == 2
    assert result["selected"] == result["last"]
    assert {"accuracy", "infomax", "transfer_loss", "loss"} <= result["last"].keys()
    assert ("domain_accuracy" in result["last"]) == (method.method == "cdan")


@METHODS
def test_labels_of_the_target_change_nothing_and_are_not_seen(toolkit, method, both, tmp_path):
    source, target = both
    relabelled = replace(target, labels=np.zeros(len(target), dtype=int))
    weights = []
    for number, domain in enumerate((target, relabelled, target.without_labels())):
        run = training(toolkit, method, (source, domain), tmp_path / str(number))
        assert run.loaders[1].dataset.domain.labels is run.callbacks[0].loader.dataset.domain.labels is None
        assert ("accuracy" in run.fit({})["last"]) == (domain.labels is not None)
        weights.append(latest(tmp_path / str(number)))
    assert differences(weights[0], weights[1]) == differences(weights[0], weights[2]) == []
