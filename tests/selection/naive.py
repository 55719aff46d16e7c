"""The criteria written out by their definitions, in plain Python and NumPy."""

import itertools
import math

from tests.self_training.naive import argmax


def naive_entropy(distribution):
    return -sum(p * math.log(p) for p in distribution if p > 0)


def naive_mean_entropy(rows):
    return sum(naive_entropy(row) for row in rows) / len(rows)


def naive_infomax(rows):
    mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    return naive_entropy(mean) - naive_mean_entropy(rows)


def naive_corr_c(rows):
    classes = range(len(rows[0]))
    products = {}
    for i, j in itertools.product(classes, repeat=2):
        products[i, j] = sum(row[i] * row[j] for row in rows)
    norm = math.sqrt(sum(product**2 for product in products.values()))
    total = 0.0
    for (i, j), product in products.items():
        target = 1 / math.sqrt(len(classes)) if i == j else 0
        total += (product / norm - target) ** 2
    return math.sqrt(total)


def naive_aetta(rows, passes, alpha=3):
    """The authors' estimate of the first batch, before it is averaged with others."""
    num_classes = len(rows[0])
    every = [row for dropped in passes for row in dropped]
    mean = [sum(column) / len(every) for column in zip(*every, strict=True)]
    entropy = -sum(value * math.log(value + 1e-6) for value in mean)
    labels = [argmax(row) for row in rows]
    misses = []
    for dropped in passes:
        misses += [argmax(row) != label for row, label in zip(dropped, labels, strict=True)]
    error = sum(misses) / len(misses) / (entropy / math.log(num_classes)) ** alpha
    return 1 - max(0.0, min(1 - 1 / num_classes, error))


ORACLES = {
    "infomax": naive_infomax,
    "corr_c": naive_corr_c,
    "mean_entropy": naive_mean_entropy,
}
