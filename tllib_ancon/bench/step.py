"""What AnCon adds to a step of self-training."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tllib_ancon.bench.timing import Row, device_clock, in_turn, process_clock, ratio, row
from tllib_ancon.models.backbones import create_backbone
from tllib_ancon.models.classifier import adaptation_mode, shot_classifier
from tllib_ancon.models.parameters import choose_adapted_parameters
from tllib_ancon.self_training import methods
from tllib_ancon.training.optimization import create_sgd

BATCH, NUM_SAMPLES, NUM_CLASSES = 64, 5000, 10


def measure(rounds: int = 300) -> list[Row]:
    """The small CNN at 32² on the CPU, and ResNet-50 at 224² where there is a GPU; batches of 64."""
    rows = _compare("small CNN at 32², CPU", "small_cnn", 32, torch.device("cpu"), rounds, at_most=1.02)
    if torch.cuda.is_available():
        rows += _compare("ResNet-50 at 224², GPU", "resnet50", 224, torch.device("cuda"), rounds, at_most=1.01)
    return rows


def _compare(title: str, arch: str, side: int, device: torch.device, rounds: int, at_most: float) -> list[Row]:
    steps = {method: training_step(method, arch, side, device) for method in ("self-training", "ancon")}
    clock = device_clock if device.type == "cuda" else process_clock
    seconds = in_turn(steps, rounds, warmup=5, clock=clock)
    ancon, plain = seconds["ancon"], seconds["self-training"]
    return [
        row(f"step of self-training, {title}", [1e3 * value for value in plain], "ms"),
        ratio(f"step of AnCon / of self-training, {title}", ancon, plain, at_most=at_most),
    ]


def training_step(method: str, arch: str, side: int, device: torch.device) -> Callable[[], None]:
    """One step of the adaptation loop on random images."""
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone = create_backbone(arch, pretrained=False)
        model = shot_classifier(backbone.network, NUM_CLASSES, 256, backbone.pool_layer(), finetune=False).to(device)
    choose_adapted_parameters(model, "all-but-head")
    adaptation_mode(model)
    optimizer = create_sgd(model.get_parameters(1e-3), momentum=0.9, weight_decay=1e-3)
    loss_of = methods.create(method, num_samples=NUM_SAMPLES, num_classes=NUM_CLASSES, feature_dim=256).to(device)
    images = torch.randn(BATCH, 3, side, side, generator=generator).to(device)

    def step() -> None:
        indices = torch.randint(NUM_SAMPLES, (BATCH,), generator=generator)
        logits, features = model(images)
        loss_of(indices, logits, features).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
