"""Functions of plain Python for the naive versions of methods."""

import math


def softmax(logits):
    largest = max(logits)
    exponentials = [math.exp(value - largest) for value in logits]
    return [value / sum(exponentials) for value in exponentials]


def argmax(values):
    return list(values).index(max(values))
