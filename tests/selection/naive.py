"""The criteria written out by their definitions, in plain Python and NumPy."""

import math

from tests.self_training.naive import argmax


def naive_entropy(distribution):
    return -sum(p * math.log(p) for p in distribution if p > 0)


def naive_mean_entropy(rows):
    return sum(naive_entropy(row) for row in rows) / len(rows)


def naive_infomax(rows):
    return naive_entropy([sum(column) / len(rows) for column in zip(*rows, strict=True)]) - naive_mean_entropy(rows)


def naive_corr_c(rows):
    classes = range(len(rows[0]))
    c = [[sum(row[i] * row[j] for row in rows) for j in classes] for i in classes]
    norm = math.sqrt(sum(c[i][j] ** 2 for i in classes for j in classes))
    target = 1 / math.sqrt(len(classes))
    return math.sqrt(sum((c[i][j] / norm - (target if i == j else 0)) ** 2 for i in classes for j in classes))


def naive_aetta(rows, passes, alpha=3):
    """The authors' estimate of the first batch, before it is averaged with others."""
    num_classes = len(rows[0])
    every = [row for dropped in passes for row in dropped]
    mean = [sum(column) / len(every) for column in zip(*every, strict=True)]
    entropy = -sum(value * math.log(value + 1e-6) for value in mean)
    misses = [argmax(dropped[i]) != argmax(rows[i]) for dropped in passes for i in range(len(rows))]
    error = sum(misses) / len(misses) / (entropy / math.log(num_classes)) ** alpha
    return 1 - max(0.0, min(1 - 1 / num_classes, error))


ORACLES = {
    "infomax": naive_infomax,
    "corr_c": naive_corr_c,
    "mean_entropy": naive_mean_entropy,
}
