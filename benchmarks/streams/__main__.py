"""Accuracy of models that adapt to the stream of CIFAR-10-C, corruption after corruption, and the time they take."""

import time
from collections import namedtuple
from itertools import product
from pathlib import Path

import numpy as np
import pandas
import torch

from benchmarks import parser, run
from benchmarks.cifar10_c.corruptions import CORRUPTIONS, corrupted
from benchmarks.cifar10_c.networks import batches, load
from benchmarks.tables import markdown, record, recorded, with_error
from tllib_ancon.training.online import Online, online

BATCH = 200
SEVERITY = 5
METHODS = ("source", "adabn", "tent", "eta", "roid", "stream-auto")
MIXING = ("adabn", "tent", "eta", "roid", "stream-auto")
MODES = ("continual", "episodic")
ORDERS = ("iid", "sorted")
"""Of the images of a corruption: that of the file, which is random, or by class."""
JUDGES = ("impulse_noise", "glass_blur", "frost", "brightness", "contrast", "jpeg_compression")
"""Corruptions that judge the rule for sorted streams and small batches. It was chosen on others."""
STATELESS = ("source", "adabn, target")
"""Methods to which a reset changes nothing: measured once."""
Stream = namedtuple("Stream", "network images mode order batch method")
"""What a row of the results is of."""
COLUMNS = [*Stream._fields, "corruption", "accuracy", "seconds"]


def main(words=None):
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
    args = arguments.parse_args(words)
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    with np.load(args.folder / "test.npz") as data:
        images = data["x"][: args.images]
        labels = torch.from_numpy(data["y"][: args.images])
    for network in args.networks:
        source = load(next(args.folder.glob(f"{network}-*.th"))).to(memory_format=torch.channels_last)
        for mode, order, batch, method in product(args.modes, args.orders, args.batches, args.methods):
            if mode == "continual" or method not in STATELESS:
                stream = Stream(network, len(images), mode, order, batch, method)
                measure(args, stream, source, images, labels)
    print(table(pandas.read_csv(args.out / "streams.csv")))


def measure(args, stream, source, images, labels):
    """Append a row for each corruption. A stream that was cut starts again."""
    path = args.out / "streams.csv"
    if (*stream, args.corruptions[-1]) in recorded(path, COLUMNS[:7]):
        return
    name, _, variant = stream.method.partition(", ")
    model = source
    if name != "source":
        settings = {"batch_norm": "target"} if variant else {}
        model = online(source, name, **settings)
    positions = torch.arange(len(labels))
    if stream.order == "sorted":
        positions = labels.argsort(stable=True)
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


def shifted(args, images, corruption):
    """Corrupted images, kept in OUT."""
    path = args.out / f"{corruption}_{len(images)}.npy"
    if not path.exists():
        np.save(path, corrupted(images, corruption, SEVERITY, frost=args.folder / "frost"))
    return np.load(path)


def normalised(images, batch_size=BATCH):
    return [batch.contiguous(memory_format=torch.channels_last) for batch in batches(images, batch_size)]


def table(rows):
    """Mean accuracy and its standard error over the corruptions, of streams in the usual order."""
    usual = rows[(rows.order == "iid") & (rows.batch == BATCH)]
    stream = ["network", "images", "mode"]
    accuracies = usual.groupby([*stream, "method"]).accuracy
    cells = accuracies.agg(with_error)[accuracies.count() == len(CORRUPTIONS)].unstack()
    cells = cells.reindex(index=usual.set_index(stream).index.unique(), columns=METHODS).dropna(how="all")
    unchanged = ["source", "adabn"]  # by a reset
    cells[unchanged] = cells.groupby(["network", "images"])[unchanged].transform("first")
    lines = []
    for (network, images, mode), of_stream in cells.fillna("–").iterrows():
        lines.append([f"{network}, {images:,} images, {mode}", *of_stream])
    return markdown(["network and stream", *METHODS], lines, numbers=True)


def table_of_orders(rows):
    """Accuracy on the corruptions that judge: a row for each method and sorted stream or small batch."""
    judging = rows[(rows.network == "resnet20") & rows.corruption.isin(JUDGES)]
    sources = judging[judging.method == "source"].groupby(["images", "corruption"]).accuracy.first()
    hard_streams = judging[(judging.order == "sorted") | (judging.batch < BATCH)]
    lines = []
    for (order, batch, images), group in hard_streams.groupby(["order", "batch", "images"]):
        accuracies = group.pivot_table("accuracy", "corruption", "method")
        for method in MIXING:
            columns = accuracies.reindex(columns=[f"{method}, target", method])
            if columns.notna().any(axis=None):
                gains = columns[method] - sources[images]
                cells = [
                    with_error(column)
                    for column in (sources[images], columns[f"{method}, target"], columns[method], gains)
                ]
                lines.append([f"{order}, batches of {batch}, {images:,} images", method, *cells])
    header = ["stream", "method", "source", "target", "default", "default − source"]
    return markdown(header, lines, numbers=True).replace("nan ± nan", "–")


if __name__ == "__main__":
    run(main)
