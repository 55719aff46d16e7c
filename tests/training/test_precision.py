"""Steps in other precisions and layouts, and that they wait for no number of the device."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.domains_on_disk import write_domain
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.open import open_domain
from tllib_ancon.data.transforms import Preprocessing, evaluation_transform, train_transform
from tllib_ancon.models.classifier import shot_classifier
from tllib_ancon.models.networks import create_backbone
from tllib_ancon.self_training import elr, ensemble, memory_bank
from tllib_ancon.training import loop
from tllib_ancon.training.adaptation import Adaptation
from tllib_ancon.training.facts import facts_of
from tllib_ancon.training.image_transforms import Transforms
from tllib_ancon.training.loop import _create_optimizer
from tllib_ancon.training.plan import Plan
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.resolve import resolve
from tllib_ancon.training.run import MemoryRun
from tllib_ancon.training.source import Source


def adapt(folder: Path, images: int = 48, epochs: int = 1, **options: Any) -> Adaptation:
    """One epoch of so many."""
    write_domain(folder, "dark", images, seed=0)
    target = open_domain(folder, "ImageList", ["dark"])
    sizes = Preprocessing(train_resizing="res.", val_resizing="res.", resize_size=16, horizontal_flip=False)
    torch.manual_seed(0)
    model = shot_classifier(create_backbone("small_cnn", pretrained=False), 3, 8, finetune=False)
    settings = {"method": "ancon", "batch_size": 16, "lr": 1e-3, "hold_out": 0.0, "workers": 0, **options}
    config, transforms = AdaptConfig(epochs=epochs, **settings), (train_transform(sizes), evaluation_transform(sizes))
    config, _ = resolve(config, facts_of(config, Source()))
    plan = Plan(config, config, Source(), model, target, Transforms(*transforms), Progress(quiet=True), {})
    adaptation = Adaptation(plan, MemoryRun())
    adaptation._train_epoch(1)
    return adaptation


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Adaptation:
    return adapt(tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize("faster", ["MANY_CONVOLUTIONS", "MANY_WEIGHTS"])
def test_layout_and_speed_change_the_rounding_alone(tmp_path, plain, faster: str, monkeypatch) -> None:
    monkeypatch.setattr(loop, faster, 0)
    found = adapt(tmp_path).network.state_dict()
    expected = plain.network.state_dict()
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert torch.allclose(tensor, expected[name], rtol=1e-3, atol=1e-4), name


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_a_large_network_has_the_fused_kernel_where_there_is_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_fused(width: int) -> bool:
        layer = nn.Linear(1000, width)
        groups = [{"params": [*layer.parameters()], "lr": 0.1}]
        return bool(_create_optimizer(groups, AdaptConfig(optimizer=name), layer).param_groups[0]["fused"])

    assert (is_fused(10), is_fused(1000)) == (False, True)
    kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[name]
    create = kind.__init__

    def without_kernel(optimizer: torch.optim.Optimizer, *arguments: object, fused: bool | None, **options) -> None:
        if fused:
            raise RuntimeError("`fused=True` requires all the params to be on supported devices")
        create(optimizer, *arguments, fused=fused, **options)

    monkeypatch.setattr(kind, "__init__", without_kernel)
    assert not is_fused(1000)


def test_a_run_in_bfloat16_has_votes_and_weights_in_float32_and_evaluates_in_bfloat16(tmp_path: Path, plain) -> None:
    adaptation = adapt(tmp_path, mixed_precision="bf16")
    ensemble = adaptation.method.ensemble
    assert ensemble.threshold.dtype == ensemble.votes(torch.arange(48)).dtype == torch.float32
    assert all(tensor.dtype != torch.bfloat16 for tensor in adaptation.network.state_dict().values())
    for run, rounded in ((adaptation, True), (plain, False)):
        logits = run._predict(run.images.target, epoch=1).logits
        assert logits.dtype == torch.float32
        assert torch.equal(logits, logits.bfloat16().float()) == rounded


READS = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal")


class HostReads(TorchDispatchMode):
    """Counts what would make a GPU step wait: values read by Python, and shapes that depend on values."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function.overloadpacket.__name__ in READS
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("method", ["self-training", "ancon", "elr", "gce+ancon", "nrc+ancon", "aad"])
def test_steps_read_nothing_but_every_n(tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """But the range of indices, which is read on the CPU, where the loader delivers them."""
    for module in (ensemble, elr, memory_bank):
        monkeypatch.setattr(module, "check_visit", lambda *_: None)

    def reads(images: int, print_freq: int) -> int:
        options = {"epochs": 2, "batch_size": 8, "print_freq": print_freq}
        adaptation = adapt(tmp_path / f"{images}-{print_freq}", images, method=method, **options)
        with HostReads() as counted:
            adaptation._train_epoch(2)
        return counted.count

    few, many = reads(24, 100), reads(72, 100)
    assert few == many < reads(72, 1)
