"""At which rates a transformer adapts: a small ViT, trained on the demo's rendered digits, on its handwritten ones.

    python -m benchmarks.transformer_rate OUT

writes OUT/transformer_rate.md, a row for each optimiser and rate: accuracy in percent of the source model and after the
last epoch, means over seeds, and how many seeds end below their start.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import timm
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from benchmarks.do_no_harm import parser, run
from tllib_ancon import adapt
from tllib_ancon.data.demo import handwritten_digits, rendered_digits

RATES = {"sgd": (1e-3, 1e-2, 1e-1), "adamw": (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2)}
METHODS, SEEDS, SOURCE_EPOCHS, EPOCHS = ("ancon", "self-training"), (0, 1), 10, 5
PART = 3
"""Every so many of the handwritten digits."""


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("out", type=Path, metavar="OUT")
    out = arguments.parse_args(words).out
    (images, labels), (target, true) = tensors(rendered_digits()), tensors(list(handwritten_digits())[::PART])
    models = [trained(images, labels, seed) for seed in SEEDS]
    lines = ["| method | optimizer | lr | start | last | below the start |", "|---|---|---:|---:|---:|---:|"]
    for method in METHODS:
        for optimizer, lr in ((name, rate) for name, rates in RATES.items() for rate in rates):
            settings = {"method": method, "optimizer": optimizer, "lr": lr, "epochs": EPOCHS, "criterion": "last"}
            quiet = {"labels": true.tolist(), "workers": 0, "quiet": True}
            runs = [
                adapt(model, TensorDataset(target), seed=seed, **settings, **quiet).summary
                for seed, model in zip(SEEDS, models, strict=True)
            ]
            start, last = ([one[which]["accuracy"] for one in runs] for which in ("start", "last"))
            below = f"{np.less(last, start).sum()} of {len(SEEDS)}"
            lines.append(f"| {method} | {optimizer} | {lr:g} | {np.mean(start):.1f} | {np.mean(last):.1f} | {below} |")
            print(lines[-1], flush=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / "transformer_rate.md").write_text("\n".join(lines) + "\n")


def tensors(digits: object) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 8, 8), from -1 to 1, and labels (N,)."""
    images, labels = zip(*digits, strict=True)  # type: ignore[call-overload]
    pixels = np.stack([np.asarray(image.convert("L").resize((8, 8)), np.float32) for image in images])
    return torch.from_numpy(pixels / 127.5 - 1)[:, None].expand(-1, 3, -1, -1).contiguous(), torch.tensor(labels)


def trained(images: Tensor, labels: Tensor, seed: int) -> nn.Module:
    """A ViT of four blocks, trained from scratch."""
    torch.manual_seed(seed)
    size = {"img_size": 8, "patch_size": 2, "embed_dim": 64, "depth": 4, "num_heads": 4, "num_classes": 10}
    model = timm.create_model("vit_tiny_patch16_224", **size)
    optimizer, steps = torch.optim.AdamW(model.parameters(), 1e-3), SOURCE_EPOCHS * (len(images) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, steps)
    for _ in range(SOURCE_EPOCHS):
        for batch in torch.randperm(len(images)).split(64)[: len(images) // 64]:
            nn.functional.cross_entropy(model(images[batch]), labels[batch], label_smoothing=0.1).backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
    return model.eval()


if __name__ == "__main__":
    run(main)
