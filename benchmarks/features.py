"""A small classifier on stored features of Office-31: its accuracy, and the seconds of its adaptation."""

import argparse
import sys
import time
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import timm
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from benchmarks import folders
from benchmarks.tables import markdown
from tllib_ancon import adapt
from tllib_ancon.data.open import open_domain

DOMAINS = ("A", "D", "W")
METHODS = ("adabn", "tent", "ancon", "ancon-auto", "shot+ancon-auto")


def main(words: Sequence[str] | None = None) -> int:
    parser = folders(__spec__.name, __doc__)
    parser.add_argument("--side", type=int, default=128, metavar="PIXELS")
    parser.add_argument("--epochs", type=int, default=10, metavar="N")
    args = parser.parse_args(words)
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    features = {code: extracted(args, code) for code in DOMAINS}
    rows, seconds = [], []
    for source, target in permutations(DOMAINS, 2):
        model, (inputs, labels) = trained(*features[source]), features[target]
        found = []
        for method in METHODS:
            start = time.process_time()
            settings = {"workers": 0, "threads": 1, "quiet": True, "record_every": 100}
            result = adapt(model, inputs, labels=labels, method=method, epochs=args.epochs, augment=drop, **settings)
            seconds.append(time.process_time() - start)
            found.append(result.metrics[result.selected_epoch]["accuracy"])
        rows.append([f"{source} to {target}", result.metrics[0]["accuracy"], *found])
        print(*rows[-1], flush=True)
    rows.append(["mean", *np.mean([row[1:] for row in rows], 0)])
    shown = ([name, *(f"{value:.1f}" for value in values)] for name, *values in rows)
    print(markdown(["pair", "source model", *METHODS], shown, numbers=True))
    print(f"{np.mean(seconds):.1f} s of processor time for one adaptation, {max(seconds):.1f} s at most")
    return 0


def extracted(args: argparse.Namespace, code: str) -> tuple[Tensor, np.ndarray]:
    """Features (N, 1280) of one domain by MobileNetV2 with ImageNet's weights, and the labels."""
    path = args.out / f"{code}_{args.side}.npy"
    domain = open_domain(args.data / "office31", "Office31", [code])
    if not path.exists():
        network = timm.create_model("mobilenetv2_100", pad_type="same", num_classes=0)
        weights = load_file(args.data / "mobilenetv2_100_imagenet.safetensors")
        network.load_state_dict(weights, strict=False)
        network.eval().to(memory_format=torch.channels_last)
        made = []
        with torch.inference_mode():
            for start in range(0, len(domain), 64):
                images = [domain.image(index) for index in range(start, min(start + 64, len(domain)))]
                pixels = np.stack([np.asarray(image.resize((args.side, args.side))) for image in images])
                batch = (torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255 - 0.5) / 0.5
                made.append(network(batch.contiguous(memory_format=torch.channels_last)))
        np.save(path, torch.cat(made).numpy())
    assert domain.labels is not None
    return torch.from_numpy(np.load(path)), domain.labels


def trained(inputs: Tensor, labels: np.ndarray) -> nn.Module:
    """The bottleneck and the head of SHOT on the source's features."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(inputs.shape[1], 256), nn.BatchNorm1d(256), nn.Linear(256, 31))
    optimizer, targets = torch.optim.Adam(model.parameters(), lr=1e-3), torch.from_numpy(labels)
    for _ in range(20):
        for rows in torch.randperm(len(inputs)).split(64):
            if len(rows) == 1:
                continue
            loss = nn.functional.cross_entropy(model(drop(inputs[rows])), targets[rows], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


def drop(batch: Tensor) -> Tensor:
    """Zero a fifth of the features, at random."""
    return nn.functional.dropout(batch, 0.2)


if __name__ == "__main__":
    sys.exit(main())
