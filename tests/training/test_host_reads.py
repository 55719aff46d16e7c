from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.domains_on_disk import write_domain
from tllib_ancon.config import AdaptConfig
from tllib_ancon.data.domains import open_domain
from tllib_ancon.data.transforms import TransformOptions, evaluation_transform, train_transform
from tllib_ancon.models.backbones import create_backbone
from tllib_ancon.models.classifier import shot_classifier
from tllib_ancon.self_training import aad, elr, ensemble, nrc
from tllib_ancon.training.adaptation import Adaptation
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.run_directory import RunDirectory

READS = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal")


class HostReads(TorchDispatchMode):
    """Counts what would make a GPU step wait: values read by Python, and shapes that depend on values."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function.overloadpacket.__name__ in READS
        return function(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def indices_as_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The range of indices is read on the CPU, where the loader delivers them, and nowhere else."""
    for module in (ensemble, elr, nrc, aad):
        if hasattr(module, "check_visit"):
            monkeypatch.setattr(module, "check_visit", lambda *_: None)


def reads_of_an_epoch(folder: Path, method: str, images: int, print_freq: int) -> int:
    write_domain(folder, "dark", images, seed=0)
    target = open_domain(folder, "ImageList", ["dark"])
    options = TransformOptions(train_resizing="res.", val_resizing="res.", resize_size=16, horizontal_flip=False)
    torch.manual_seed(0)
    backbone = create_backbone("small_cnn", pretrained=False)
    adaptation = Adaptation(
        shot_classifier(backbone.network, target.num_classes, 8, finetune=False),
        target,
        AdaptConfig(method=method, epochs=2, batch_size=8, hold_out=0.0, workers=0, print_freq=print_freq),
        RunDirectory(folder / "run"),
        train_transform(options),
        evaluation_transform(options),
        progress=Progress(quiet=True),
    )
    adaptation._train_epoch(1)
    with HostReads() as reads:
        adaptation._train_epoch(2)
    return reads.count


@pytest.mark.parametrize("method", ["self-training", "ancon", "elr", "gce+ancon", "nrc+ancon", "aad"])
def test_steps_read_nothing_but_every_n(tmp_path: Path, method: str) -> None:
    short, long = (reads_of_an_epoch(tmp_path / str(images), method, images, print_freq=100) for images in (24, 72))
    assert short == long
    often = reads_of_an_epoch(tmp_path / "often", method, 72, print_freq=1)
    assert often > long
