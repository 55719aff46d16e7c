"""The criteria written out by their definitions, in plain Python and NumPy."""

import itertools
import math


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


ORACLES = {
    "infomax": naive_infomax,
    "corr_c": naive_corr_c,
    "mean_entropy": naive_mean_entropy,
}
