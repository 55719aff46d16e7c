"""Images a second of ``tllib_ancon.predict``: the usual loop over the same model against it."""

import tempfile
from pathlib import Path

import numpy as np
import timm
import torch
from numpy.typing import NDArray
from timm.data.config import resolve_model_data_config
from timm.data.dataset import ImageDataset
from timm.data.transforms_factory import create_transform
from torch import nn
from torch.utils.data import DataLoader

from benchmarks.speed.images import draw_domain
from benchmarks.speed.timing import Row, in_turn, ratio, row, wall_clock
from tllib_ancon import predict
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.open import open_domain

BATCH = 64


def measure(root: str | None = None, workers: int = 2, rounds: int = 3, **_: object) -> list[Row]:
    """ResNet-50 where there is a GPU, else MobileNetV2; 224², random weights.

    Args:
        root: Office-31 in TLLib's layout, of which Amazon is read. Default: pictures of its size, drawn at random
    """
    with tempfile.TemporaryDirectory() as folder:
        images = open_domain(root, "Office31", ["A"]) if root else draw_domain(Path(folder))
        return compare("resnet50" if torch.cuda.is_available() else "mobilenetv2_100", images, rounds, workers)


def compare(arch: str, images: Domain, rounds: int, workers: int) -> list[Row]:
    """Both on all images in turn, and whether they say the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = timm.create_model(arch).to("cuda" if torch.cuda.is_available() else "cpu").eval()
    answers: dict[str, NDArray[np.float32]] = {}

    def usual() -> None:
        answers["usual"] = usual_loop(model, images, workers)

    def ours() -> None:
        answers["ours"] = predict(model, images, batch_size=BATCH, workers=workers).probabilities

    usual_loop(model, images.subset(range(min(BATCH, len(images)))), workers)
    seconds = in_turn({"usual": usual, "ours": ours}, rounds, warmup=0, clock=wall_clock)
    difference = float(np.abs(answers["usual"] - answers["ours"]).max())
    title = f"{arch}, {len(images)} pictures, {workers} workers"
    return [
        row(f"predictions of a DataLoader loop, {title}", [len(images) / s for s in seconds["usual"]], "images/s"),
        ratio("images/s of predict / the loop's", seconds["usual"], seconds["ours"], at_least=1.5),
        row("largest difference of a probability", [difference], "", at_most=1e-4),
    ]


@torch.inference_mode()
def usual_loop(model: nn.Module, images: Domain, workers: int) -> NDArray[np.float32]:
    """Probabilities (N, K) as timm's documentation has it: its transform for the model, a DataLoader, a loop."""
    place = next(model.parameters()).device
    transform = create_transform(**resolve_model_data_config(model))
    files = ImageDataset("", reader=[(path, 0) for path in images.paths or ()], transform=transform)
    loader = DataLoader(files, BATCH, num_workers=workers, pin_memory=place.type == "cuda")
    return np.concatenate([model(batch.to(place)).softmax(1).cpu().numpy() for batch, _ in loader])
