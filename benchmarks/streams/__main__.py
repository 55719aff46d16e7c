"""Accuracy of models that adapt to the stream of CIFAR-10-C, corruption after corruption, and the time they take."""

import argparse
import copy
import random
import time
from collections.abc import Callable, Sequence
from itertools import cycle, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas
import torch
from torch import Tensor, nn
from torchvision.transforms import v2

from benchmarks import parser, run
from benchmarks.cifar10_c.corruptions import CORRUPTIONS, Bytes, corrupted
from benchmarks.cifar10_c.networks import CENTRE, SCALE, batches, load
from benchmarks.speed.timing import in_turn
from benchmarks.tables import markdown, record, recorded
from tllib_ancon.training.online import Online, online

BATCH, SEVERITY = 200, 5
METHODS = ("source", "adabn", "tent", "eta", "roid", "roid, stack", "ancon-auto")
MIXING = ("adabn", "tent", "eta", "roid", "ancon-auto")
STACK = v2.Compose(
    [
        v2.ColorJitter((0.6, 1.4), (0.7, 1.3), (0.5, 1.5), 0.06),
        v2.Lambda(lambda batch: batch ** random.uniform(0.7, 1.3)),
        v2.Pad(16, padding_mode="edge"),
        v2.RandomAffine(15, (1 / 16, 1 / 16), (0.9, 1.1), interpolation=v2.InterpolationMode.BILINEAR),
        v2.GaussianBlur(5, (0.001, 0.5)),
        v2.CenterCrop(32),
        v2.RandomHorizontalFlip(),
        v2.GaussianNoise(0, 0.005),
    ]
)
"""The augmentations of CoTTA without its last clipping: one draw for each batch of pixels in [0, 1]."""
VARIANTS = {"": {}, "stack": {"augment": lambda batch: stack(batch)}, "target": {"batch_norm": "target"}}
"""What follows a method's name after a comma, as settings of ``online``."""
MODES = ("continual", "episodic")
ORDERS = ("iid", "sorted")
"""Of the images of a corruption: that of the file, which is random, or by class."""
JUDGES = ("impulse_noise", "glass_blur", "frost", "brightness", "contrast", "jpeg_compression")
"""Corruptions that judge the rule for sorted streams and small batches. It was chosen on others."""
STATELESS = ("source", "adabn, target")
"""Methods to which a reset changes nothing: measured once."""
STREAM = ["network", "images", "mode", "order", "batch", "method"]
COLUMNS = [*STREAM, "corruption", "accuracy", "seconds"]


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser("benchmarks.streams", __doc__)
    arguments.add_argument("folder", type=Path, help="with test.npz (x, y), the networks' .th files and frost/")
    arguments.add_argument("out", type=Path, help="rows are appended to OUT/streams.csv; the same command continues")
    arguments.add_argument("--networks", nargs="+", default=["resnet20", "resnet56"], metavar="NAME")
    arguments.add_argument("--images", type=int, default=10_000, metavar="N", help="of each corruption, the first N")
    arguments.add_argument(
        "--methods", nargs="+", default=METHODS, metavar="METHOD", help="one of METHODS, or 'tent, target'"
    )
    arguments.add_argument("--modes", nargs="+", default=MODES, choices=MODES)
    arguments.add_argument("--orders", nargs="+", default=ORDERS[:1], choices=ORDERS)
    arguments.add_argument("--batches", nargs="+", type=int, default=[BATCH], metavar="B", help="images of a batch")
    arguments.add_argument("--corruptions", nargs="+", default=[*CORRUPTIONS], choices=[*CORRUPTIONS])
    arguments.add_argument("--speed", type=int, default=0, metavar="N", help="compare N batches with a plain loop")
    args = arguments.parse_args(words)
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    with np.load(args.folder / "test.npz") as data:
        images, labels = data["x"][: args.images], torch.from_numpy(data["y"][: args.images])
    for network in args.networks:
        source = load(next(args.folder.glob(f"{network}-*.th"))).to(memory_format=torch.channels_last)
        if args.speed:
            print(f"{network}: tent takes {ratio(source, images, args.speed):.3f} of a plain loop")
        for mode, order, batch, method in product(args.modes, args.orders, args.batches, args.methods):
            if mode == "continual" or method not in STATELESS:
                stream = Stream(network, len(images), mode, order, batch, method)
                measure(args, stream, source, images, labels)
    print(table(pandas.read_csv(args.out / "streams.csv")))


class Stream(NamedTuple):
    """What a row of the results is of."""

    network: str
    images: int
    mode: str
    order: str
    batch: int
    method: str


def measure(args: argparse.Namespace, stream: Stream, source: nn.Module, images: Bytes, labels: Tensor) -> None:
    """Append a row for each corruption. A stream that was cut starts again."""
    path = args.out / "streams.csv"
    if (*stream, args.corruptions[-1]) in recorded(path, [*STREAM, "corruption"]):
        return
    name, _, variant = stream.method.partition(", ")
    model = source
    if name != "source":
        model = online(source, name, **VARIANTS[variant])
    positions = torch.arange(len(labels))
    if stream.order == "sorted":
        positions = labels.argsort(stable=True)
    random.seed(0)
    torch.manual_seed(0)
    rows = []
    for corruption in args.corruptions:
        if stream.mode == "episodic" and isinstance(model, Online):
            model.reset()
        corrupted_images = shifted(args, images, corruption)[positions.numpy()]
        stream_batches = normalised(corrupted_images, stream.batch)
        start = time.process_time()
        with torch.no_grad():
            predicted = torch.cat([model(batch).argmax(1) for batch in stream_batches])
        seconds = round(time.process_time() - start, 2)
        accuracy = 100 * (predicted == labels[positions]).double().mean().item()
        rows.append([*stream, corruption, accuracy, seconds])
    record(path, rows, COLUMNS)


def shifted(args: argparse.Namespace, images: Bytes, corruption: str) -> Bytes:
    """Corrupted images, kept in OUT."""
    path = args.out / f"{corruption}_{len(images)}.npy"
    if not path.exists():
        np.save(path, corrupted(images, corruption, SEVERITY, frost=args.folder / "frost"))
    found: Bytes = np.load(path)
    return found


def normalised(images: Bytes, batch_size: int = BATCH) -> list[Tensor]:
    return [batch.contiguous(memory_format=torch.channels_last) for batch in batches(images, batch_size)]


def stack(batch: Tensor) -> Tensor:
    return (STACK((batch * SCALE + CENTRE).clamp(0, 1)) - CENTRE) / SCALE


def plain_tent(source: nn.Module) -> Callable[[Tensor], Tensor]:
    """Tent in a plain loop: batch statistics, entropy, Adam on scale and shift."""
    model = copy.deepcopy(source).train().requires_grad_(False)
    norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    for layer in norms:
        layer.requires_grad_(True)
        layer.track_running_stats, layer.running_mean, layer.running_var = False, None, None
    optimizer = torch.optim.Adam([one for layer in norms for one in layer.parameters()], lr=1e-3)

    def step(batch: Tensor) -> Tensor:
        with torch.enable_grad():
            logits: Tensor = model(batch)
            loss = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return logits

    return step


def ratio(source: nn.Module, images: Bytes, count: int) -> float:
    """Processor time of ``count`` batches, ours divided by the plain loop's; they alternate in one process."""
    batches_in_turn = cycle(normalised(images[: 5 * BATCH]))
    ours, plain = online(source, method="tent", batch_norm="target"), plain_tent(source)
    steps = {"ours": lambda: ours(next(batches_in_turn)), "plain": lambda: plain(next(batches_in_turn))}
    seconds = in_turn(steps, count)
    return sum(seconds["ours"]) / sum(seconds["plain"])


def table(rows: pandas.DataFrame) -> str:
    """Mean accuracy and its standard error over the corruptions, of streams in the usual order."""
    usual = rows[(rows.order == "iid") & (rows.batch == BATCH)]
    groups = usual.groupby(["network", "images", "mode", "method"], sort=False).accuracy
    found = groups.agg(["mean", "sem", "count"])
    cells = {key: f"{row['mean']:.1f} ± {row['sem']:.1f}" for key, row in found.iterrows() if row["count"] == 15}
    made = []
    for network, images, mode in dict.fromkeys(key[:3] for key in cells):
        of_mode = {method: "continual" if method in METHODS[:2] else mode for method in METHODS}
        values = [cells.get((network, images, of_mode[method], method), "–") for method in METHODS]
        made.append([f"{network}, {images:,} images, {mode}", *values])
    return markdown(["network and stream", *METHODS], made, numbers=True)


def table_of_orders(rows: pandas.DataFrame) -> str:
    """Accuracy on the corruptions that judge: a row for each method and sorted stream or small batch."""
    judging = rows[(rows.network == "resnet20") & rows.corruption.isin(JUDGES)]
    sources = judging[judging.method == "source"].groupby(["images", "corruption"]).accuracy.first()
    others = judging[(judging.order == "sorted") | (judging.batch < BATCH)]
    lines = []
    for stream, group in others.groupby(["order", "batch", "images"]):
        order, batch, images = stream
        accuracies = group.pivot_table("accuracy", "corruption", "method")
        for method in MIXING:
            pair = [accuracies.get(name) for name in (f"{method}, target", method)]
            if any(column is not None for column in pair):
                cells = [_mean(column) for column in (sources[images], *pair)]
                gain = "–"
                if pair[1] is not None:
                    gain = _mean(pair[1] - sources[images])
                lines.append([f"{order}, batches of {batch}, {images:,} images", method, *cells, gain])
    header = ["stream", "method", "source", "target", "default", "default − source"]
    return markdown(header, lines, numbers=True)


def _mean(accuracies: pandas.Series | None) -> str:
    if accuracies is None:
        return "–"
    return f"{accuracies.mean():.1f} ± {accuracies.sem():.1f}"


if __name__ == "__main__":
    run(main)
