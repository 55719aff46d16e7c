"""What is chosen for speed where nothing is asked for: layout, kernel, precision, kept images and memory."""

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import nn
from torch.utils.data import Dataset

import tllib_ancon
from tests.domains_on_disk import write_domain
from tests.training.small import adapt
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.training import devices
from tllib_ancon.training.loop import use_fastest_layout


def images(count: int = 8) -> torch.Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def resnet() -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model("test_resnet", pretrained=False, num_classes=3).eval()


def has_channels_last(model: nn.Module) -> bool:
    kernels = [
        layer.weight for layer in model.modules() if isinstance(layer, nn.Conv2d) and layer.kernel_size != (1, 1)
    ]
    return all(kernel.is_contiguous(memory_format=torch.channels_last) for kernel in kernels)


def test_networks_of_many_convolutions_get_the_layout_that_is_faster_for_them() -> None:
    pooling = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 3))
    for model, expected in ((nn.Sequential(nn.Conv2d(3, 4, 3)), False), (pooling, True), (resnet(), True)):
        use_fastest_layout(model)
        assert has_channels_last(model) is expected
    model, layouts = resnet(), set()
    model.register_forward_pre_hook(lambda module, _: layouts.add(has_channels_last(module)))
    adapted = adapt(model, images(), epochs=1)
    assert True in layouts
    assert not has_channels_last(adapted.model)


def test_a_gpu_with_bfloat16_computes_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    assert adapt(epochs=1).config.mixed_precision == "bf16"
    assert adapt(epochs=1, mixed_precision="no").config.mixed_precision == "no"


def test_a_run_that_began_otherwise_goes_on_as_it_began(tmp_path: Path) -> None:
    call: dict[str, Any] = {"model": resnet(), "images": images(), "log": tmp_path, "epochs": 1}
    older = adapt(**call, mixed_precision="bf16")
    assert adapt(**call).config.mixed_precision == older.config.mixed_precision == "bf16"
    with pytest.raises(UserError, match="mixed_precision: 'bf16' there, 'no' now"):
        adapt(**call, mixed_precision="no")
    assert adapt(**call, overwrite=True).config.mixed_precision == "no"


class Counting(Dataset):
    """Counts how often its images are read."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.reads = 0

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        self.reads += 1
        return self.dataset[index]


def reads(method: str, hold_out: float) -> int:
    counted, steps = Counting(images(20)), {"batch_size": 4, "workers": 0, "quiet": True, "epochs": 2}
    tllib_ancon.adapt(resnet(), counted, method=method, hold_out=hold_out, **steps)
    return counted.reads


def test_the_pass_that_scores_all_images_is_the_one_that_shot_labels_them_by() -> None:
    assert reads("shot", hold_out=0) == reads("self-training", hold_out=0)
    assert reads("shot", hold_out=0.2) == reads("self-training", hold_out=0.2) + 2 * 16


def test_images_are_read_once_in_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    from tllib_ancon.data.images import Files

    write_domain(tmp_path, "dark", 12, seed=0)
    read: list[int] = []
    decode = Files.image
    monkeypatch.setattr(Files, "image", lambda files, position: (read.append(position), decode(files, position))[1])
    call: dict[str, Any] = {"model": resnet(), "images": str(tmp_path / "dark"), "epochs": 2, "workers": 0}
    call |= {"image_size": 32, "norm_mean": (0.5,) * 3, "norm_std": (0.5,) * 3, "batch_size": 4}
    tllib_ancon.adapt(**call)
    assert len(read) <= 12 + 8  # eight to look at the network
    monkeypatch.setattr(devices, "free_memory", lambda: 4 * 12 * 32 * 32 * 3)
    tllib_ancon.adapt(**call)
    assert len(read) > 2 * 12
    assert "`cache` keeps them on disk" in capfd.readouterr().err
