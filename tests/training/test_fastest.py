"""What is chosen for speed changes rounding alone: layout, kernel, precision. Images are read once."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import Dataset

import tllib_ancon
from tests.domains_on_disk import write_domain
from tests.networks import HALVES, Net
from tests.training.small import adapt, network
from tllib_ancon.data.images import Files
from tllib_ancon.self_training import elr, ensemble, memory_bank
from tllib_ancon.training import devices, optimizer, trainer
from tllib_ancon.training.trainer import Trainer

IMAGES = torch.randn(20, 3, 32, 32, generator=torch.Generator().manual_seed(0))


# Layout


def has_channels_last(model):
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d) and layer.kernel_size != (1, 1)]
    return all(layer.weight.is_contiguous(memory_format=torch.channels_last) for layer in layers)


@pytest.mark.parametrize(
    ("layers", "is_expected"),
    [([], False), ([nn.Conv2d(4, 4, 3) for _ in range(7)], True), ([nn.MaxPool2d(2)], True)],
    ids=["one convolution", "eight convolutions", "pooling"],
)
def test_networks_of_many_convolutions_get_the_layout_that_is_faster_for_them(layers, is_expected):
    pooled = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), *layers, *pooled)
    layouts = set()
    model.register_forward_pre_hook(lambda module, _: layouts.add(has_channels_last(module)))
    adapted = adapt(model, IMAGES, epochs=1).model
    assert (True in layouts) == is_expected
    assert not has_channels_last(adapted)


@pytest.mark.parametrize(("room", "choice"), [(trainer, "MANY_CONVOLUTIONS"), (optimizer, "MANY_WEIGHTS")])
def test_layout_and_kernel_change_the_rounding_alone(room, choice, monkeypatch):
    expected = adapt(Net(3), IMAGES, epochs=1).model.state_dict()
    monkeypatch.setattr(room, choice, 0)
    found = adapt(Net(3), IMAGES, epochs=1).model.state_dict()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=1e-4)


# Kernel


@pytest.mark.parametrize(("name", "kind"), [("sgd", torch.optim.SGD), ("adamw", torch.optim.AdamW)])
def test_a_large_network_has_the_fused_kernel_where_there_is_one(name, kind, steps, monkeypatch):
    def is_fused(width):
        model = nn.Sequential(nn.Flatten(), nn.Linear(48, width), nn.Linear(width, 3))
        adapt(model, 8, epochs=1, optimizer=name)
        return bool(steps[-1][0]["fused"])

    assert [is_fused(10), is_fused(20_000)] == [False, True]
    create = kind.__init__

    def without_kernel(optimizer, *arguments, fused, **options):
        if fused:
            raise RuntimeError("`fused=True` requires all the params to be on supported devices")
        create(optimizer, *arguments, fused=fused, **options)

    monkeypatch.setattr(kind, "__init__", without_kernel)
    assert not is_fused(20_000)


# Precision


@pytest.mark.parametrize(("precision", "is_rounded"), [("bf16", True), ("no", False)])
def test_a_run_in_bfloat16_has_weights_in_float32_and_evaluates_in_bfloat16(precision, is_rounded, tmp_path):
    result = adapt(mixed_precision=precision, epochs=1, log=tmp_path, save_predictions=True)
    assert not any(tensor.dtype == torch.bfloat16 for tensor in result.model.state_dict().values())
    logits = torch.from_numpy(np.load(tmp_path / "predictions.npz")["logits"])
    assert logits.dtype == torch.float32
    assert torch.equal(logits, logits.bfloat16().float()) == is_rounded


# Images


class Counting(Dataset):
    """Counts how often its images are read."""

    def __init__(self):
        self.reads = 0

    def __len__(self):
        return len(IMAGES)

    def __getitem__(self, index):
        self.reads += 1
        return IMAGES[index, :, :4, :4]


def test_the_pass_that_scores_all_images_is_the_one_that_shot_labels_them_by():
    def reads(method, hold_out):
        counting = Counting()
        steps = {"batch_size": 4, "workers": 0, "quiet": True, "epochs": 2}
        tllib_ancon.adapt(network(), counting, method=method, hold_out=hold_out, **steps)
        return counting.reads

    assert reads("shot", hold_out=0) == reads("self-training", hold_out=0)
    assert reads("shot", hold_out=0.2) == reads("self-training", hold_out=0.2) + 2 * 16


def test_images_are_read_once_in_training(tmp_path, monkeypatch, capfd):
    write_domain(tmp_path, "dark", 12, seed=0)
    read = []
    decode = Files.image

    def counted(files, position):
        read.append(position)
        return decode(files, position)

    monkeypatch.setattr(Files, "image", counted)
    call = {"model": Net(3), "images": str(tmp_path / "dark"), "epochs": 2, "workers": 0, "batch_size": 4}
    tllib_ancon.adapt(**call, **HALVES, image_size=32)
    assert len(read) <= 12 + 8  # eight to look at the network
    monkeypatch.setattr(devices, "free_memory", lambda: 4 * 12 * 32 * 32 * 3)
    tllib_ancon.adapt(**call, **HALVES, image_size=32)
    assert len(read) > 2 * 12
    assert "`cache` keeps them on disk" in capfd.readouterr().err


# Steps that wait for no number of the device

READS = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal")


class HostReads(TorchDispatchMode):
    """Counts what would make a GPU step wait: values read by Python, and shapes that depend on values."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function.overloadpacket.__name__ in READS
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("method", ["self-training", "ancon", "elr", "gce+ancon", "nrc+ancon", "aad"])
def test_steps_read_nothing_but_every_n(method, monkeypatch):
    """But the range of indices, which is read on the CPU, where the loader delivers them."""
    for module in (ensemble, elr, memory_bank):
        monkeypatch.setattr(module, "check_visit", lambda *_: None)
    counts = []
    train = Trainer._train_epoch

    def counted(*arguments):
        with HostReads() as reads:
            loss = train(*arguments)
        counts.append(reads.count)
        return loss

    monkeypatch.setattr(Trainer, "_train_epoch", counted)

    def reads(images, print_freq):
        pixels = np.random.default_rng(0).integers(0, 256, (images, 4, 4, 3), dtype=np.uint8)
        steps = {"epochs": 2, "batch_size": 8, "hold_out": 0.0, "print_freq": print_freq, "workers": 0, "quiet": True}
        drawing_nothing = {"train_resizing": "res.", "resize_size": 4, "image_size": 4, "padding": 0, "no_hflip": True}
        tllib_ancon.adapt(network(), pixels, method=method, **steps, **drawing_nothing, **HALVES)
        return counts[-1]

    few = reads(24, 100)
    assert few == reads(72, 100) < reads(72, 1)
