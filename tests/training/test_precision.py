from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests.domains_on_disk import write_domain
from tllib_ancon.config import AdaptConfig
from tllib_ancon.data.domains import open_domain
from tllib_ancon.data.transforms import TransformOptions, evaluation_transform, train_transform
from tllib_ancon.errors import UserError
from tllib_ancon.models.backbones import create_backbone
from tllib_ancon.models.classifier import shot_classifier
from tllib_ancon.self_training import AnchoredConfidence
from tllib_ancon.training.adaptation import Adaptation
from tllib_ancon.training.optimization import create_sgd
from tllib_ancon.training.precision import lay_out
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.run_directory import RunDirectory


def adapt(folder: Path, **options) -> Adaptation:
    """One epoch by AnCon."""
    write_domain(folder, "dark", 48, seed=0)
    target = open_domain(folder, "ImageList", ["dark"])
    sizes = TransformOptions(train_resizing="res.", val_resizing="res.", resize_size=16)
    torch.manual_seed(0)
    backbone = create_backbone("small_cnn", pretrained=False)
    adaptation = Adaptation(
        shot_classifier(backbone.network, target.num_classes, 8, finetune=False),
        target,
        AdaptConfig(method="ancon", epochs=1, batch_size=16, lr=1e-3, hold_out=0.0, workers=0, **options),
        RunDirectory(folder / "run"),
        train_transform(sizes),
        evaluation_transform(sizes),
        progress=Progress(quiet=True),
    )
    adaptation._train_epoch(1)
    return adaptation


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Adaptation:
    return adapt(tmp_path_factory.mktemp("plain"))


def weights(adaptation: Adaptation) -> dict[str, torch.Tensor]:
    return adaptation.accelerator.unwrap_model(adaptation.model).state_dict()


@pytest.mark.parametrize("options", [{"channels_last": True}, {"fused": True}, {"compile": True}])
def test_layout_and_speed_change_the_rounding_alone(tmp_path, plain, options, monkeypatch) -> None:
    compiled, compile_module = [], nn.Module.compile

    def without_code_generation(module: nn.Module) -> None:
        compiled.append(module)
        compile_module(module, backend="eager")

    monkeypatch.setattr(nn.Module, "compile", without_code_generation)
    adaptation = adapt(tmp_path, **options)
    assert bool(compiled) == options.get("compile", False)
    assert weights(adaptation).keys() == weights(plain).keys()
    for name, tensor in weights(adaptation).items():
        assert torch.allclose(tensor, weights(plain)[name], rtol=1e-3, atol=1e-4), name


def test_channels_last_reaches_the_convolutions() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3))
    lay_out(model, SimpleNamespace(channels_last=True, compile=False))
    assert model(torch.rand(2, 3, 8, 8)).is_contiguous(memory_format=torch.channels_last)


def test_fused_is_the_fused_kernel_and_refused_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [{"params": [nn.Parameter(torch.zeros(3))], "lr": 0.1}]
    assert create_sgd(groups, 0.9, 0.0, fused=True).param_groups[0]["fused"]
    monkeypatch.setattr(torch.optim.SGD, "__init__", _no_kernel)
    with pytest.raises(UserError, match=r"no fused SGD .*leave out `fused`"):
        create_sgd(groups, 0.9, 0.0, fused=True)
    with pytest.raises(RuntimeError):
        create_sgd(groups, 0.9, 0.0)


def _no_kernel(*_, **__) -> None:
    raise RuntimeError("`fused=True` requires all the params to be on supported devices")


def test_votes_and_threshold_of_a_run_in_bfloat16_are_float32(tmp_path: Path) -> None:
    adaptation = adapt(tmp_path, mixed_precision="bf16")
    ensemble = adaptation.method.ensemble
    assert ensemble.threshold.dtype == torch.float32
    assert ensemble.votes(torch.arange(48)).dtype == torch.float32
    assert all(tensor.dtype != torch.bfloat16 for tensor in weights(adaptation).values())


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_the_network_is_evaluated_in_the_precision_it_learns_in(tmp_path: Path, precision: str) -> None:
    adaptation = adapt(tmp_path, mixed_precision=precision)
    logits = adaptation._predict(adaptation.target_loader, epoch=1).logits
    assert logits.dtype == torch.float32
    assert torch.equal(logits, logits.bfloat16().float()) == (precision == "bf16")


@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_autocast_does_not_reach_the_votes(storage: str) -> None:
    generator = torch.Generator().manual_seed(0)
    inside, outside = (AnchoredConfidence(20, 300, storage=storage) for _ in range(2))
    for _ in range(10):
        indices = torch.randperm(20, generator=generator)[:8]
        logits = (10 * torch.randn(8, 300, generator=generator)).bfloat16()
        expected = outside(indices, logits.float())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = inside(indices, logits)
        assert found.dtype == torch.float32
        assert torch.equal(found, expected)
        assert torch.equal(inside.threshold, outside.threshold)
