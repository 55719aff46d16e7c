"""The accuracy of public networks on CIFAR-10-C, corruption by corruption, as it is and with the target's batch-norm
statistics (AdaBN)."""

import argparse
import copy
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.cifar10_c.corruptions import CORRUPTIONS, Bytes, corrupted
from benchmarks.cifar10_c.networks import MEAN, STD, load
from benchmarks.tables import markdown
from tllib_ancon.models.batch_norm import estimated_statistics
from tllib_ancon.runtime.errors import UserError

BATCH = 500


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cifar10_c", description=__doc__)
    parser.add_argument("folder", type=Path, help="with test.npz (x, y), the networks' .th files and frost/")
    parser.add_argument("--networks", nargs="+", default=["resnet20"], metavar="NAME", help="the files' first words")
    parser.add_argument("--images", type=int, default=2000, metavar="N", help="the first of test.npz")
    parser.add_argument("--severities", type=int, nargs="+", default=[5], metavar="S", help="1 to 5, averaged")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes of one thread")
    args = parser.parse_args(words)
    measured = partial(accuracies, args.folder, args.networks, args.images, args.severities)
    try:
        with ProcessPoolExecutor(args.jobs, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            clean, *others = pool.map(measured, ["none", *CORRUPTIONS])
    except (UserError, OSError) as error:
        parser.error(str(error))
    rows = zip(["none", *CORRUPTIONS, "mean of the fifteen"], [clean, *others, np.mean(others, 0)], strict=True)
    header = ["corruption", *(f"{name}{after}" for name in args.networks for after in ("", ", AdaBN"))]
    print(markdown(header, ([name, *(f"{value:.1f}" for value in values)] for name, values in rows), numbers=True))
    return 0


def accuracies(folder: Path, networks: Sequence[str], number: int, severities: Sequence[int], name: str) -> list[float]:
    """In %, of each network and then of it with AdaBN; the mean over the severities."""
    with np.load(folder / "test.npz") as data:
        images, labels = data["x"][:number], torch.from_numpy(data["y"][:number])
    shifted = [images]
    if name != "none":
        shifted = [corrupted(images, name, severity, frost=folder / "frost") for severity in severities]
    values: list[float] = []
    for network in networks:
        path = next(folder.glob(f"{network}-*.th"), None)
        if path is None:
            raise UserError(f"{folder} has no {network}-*.th")
        source = load(path)
        values.append(float(np.mean([accuracy(source, each, labels) for each in shifted])))
        values.append(float(np.mean([accuracy(_adabn(source, each), each, labels) for each in shifted])))
    return values


@torch.no_grad()
def accuracy(model: nn.Module, images: Bytes, labels: Tensor) -> float:
    predictions = torch.cat([model(batch).argmax(1) for batch in batches(images)])
    return 100 * (predictions == labels).double().mean().item()


def batches(images: Bytes) -> Iterator[Tensor]:
    """Normalised as the networks expect."""
    mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
    for start in range(0, len(images), BATCH):
        yield (torch.from_numpy(images[start : start + BATCH]).permute(0, 3, 1, 2) / 255 - mean) / std


def _adabn(source: nn.Module, images: Bytes) -> nn.Module:
    model = copy.deepcopy(source)
    with estimated_statistics(model.eval()), torch.no_grad():
        for batch in batches(images):
            model(batch)
    return model


if __name__ == "__main__":
    sys.exit(main())
