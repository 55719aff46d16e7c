"""Eq. 1-3 of the paper transcribed in plain Python, one sample at a time: the oracle of the tests."""

import math


def softmax(logits):
    largest = max(logits)
    exponentials = [math.exp(value - largest) for value in logits]
    return [value / sum(exponentials) for value in exponentials]


def argmax(values):
    return list(values).index(max(values))


class NaiveAnCon:
    """Keeps every prediction ever made, and sums them anew at each visit."""

    def __init__(self, num_classes, smoothing, beta, convention, normalize=False):
        self.num_classes = num_classes
        self.smoothing = smoothing
        self.beta = beta
        self.convention = convention
        self.normalize = normalize
        self.batch_means = []
        self.history = {}

    def threshold(self):
        """δ_m from the whole history of batch means."""
        last = len(self.batch_means) - 1
        terms = []
        for step, mean in enumerate(self.batch_means):
            weight = (1 - self.beta) * self.beta ** (last - step)
            terms.append(weight * mean)
        if self.convention == "authors":
            terms[0] = self.beta**last * self.batch_means[0]
        return sum(terms)

    def ensemble(self, index):
        votes = [float(self.history.get(index, []).count(k)) for k in range(self.num_classes)]
        if self.normalize and sum(votes):
            return [vote / sum(votes) for vote in votes]
        return votes

    def visit(self, indices, logits):
        probabilities = [softmax(row) for row in logits]
        before = [self.ensemble(index) for index in indices]
        self.batch_means.append(sum(max(row) for row in probabilities) / len(probabilities))
        threshold = self.threshold()
        for index, row in zip(indices, probabilities, strict=True):
            above = max(row) > threshold
            if above or (self.convention == "authors" and max(row) == threshold):
                self.history.setdefault(index, []).append(argmax(row))
        after = [self.ensemble(index) for index in indices]
        read = before if self.convention == "authors" else after
        targets = []
        for row, anchor in zip(probabilities, read, strict=True):
            target = [self.smoothing * votes for votes in anchor]
            target[argmax(row)] += 1 - self.smoothing
            targets.append(target)
        return targets
