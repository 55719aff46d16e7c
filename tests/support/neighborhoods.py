"""What the tests of neighbourhood methods share: a target set, its visits, and an oracle's memory."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tests.support.naive import dot, softmax, unit
from tllib_ancon import methods

N = 40
K = 4
D = 6


def few_neighbors(method, neighbors, expanded_neighbors):
    """These options as far as the method reads them."""
    own = methods.settings(method)
    options = {"neighbors": neighbors, "expanded_neighbors": expanded_neighbors}
    return {name: value for name, value in options.items() if name in own}


@dataclass
class Visits:
    """One full pass over N samples and a few batches that overlap; the anchors have rows without a vote."""

    first: tuple[Tensor, Tensor, Tensor]
    steps: list[tuple[Tensor, Tensor, Tensor, Tensor]]


def random_visits(seed, num_steps=5):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    steps = []
    for _ in range(num_steps):
        indices = torch.randperm(N, generator=generator)[:12]
        features = normal(12, D)
        logits = 2 * normal(12, K)
        votes = torch.randint(0, 5, (12, K), generator=generator)
        has_votes = torch.randint(0, 2, (12, 1), generator=generator)
        steps.append((indices, features, logits, votes * has_votes))
    return Visits((torch.arange(N), normal(N, D), 2 * normal(N, K)), steps)


def losses(part, visits, anchored=True):
    """The loss of each step."""
    part.initialize(*visits.first)
    values = []
    for indices, features, logits, anchors in visits.steps:
        votes = anchors.float() if anchored else None
        values.append(part(indices, features, logits, votes))
    return torch.stack(values)


class NaiveMemory:
    """Features of length 1 and predictions, sample by sample."""

    def __init__(self, indices, features, logits):
        self.features = {}
        self.scores = {}
        self.update(indices, features, logits)

    def update(self, indices, features, logits):
        for index, feature, row in zip(indices.tolist(), features.tolist(), logits.tolist(), strict=True):
            self.features[index] = unit(feature)
            self.scores[index] = softmax(row)

    def nearest(self, index, k):
        others = set(self.features) - {index}

        def similarity(other):
            return dot(self.features[index], self.features[other])

        return sorted(others, key=similarity, reverse=True)[:k]


MIXINGS = (None, "authors", "normalized", "adaptive")


def mixed(mixing, votes, score, weight):
    """A remembered prediction with a sample's votes mixed in."""
    if mixing is None or (mixing != "authors" and not sum(votes)):
        return score
    weight = sum(votes) / (1 + sum(votes)) if mixing == "adaptive" else weight
    mass = 1 if mixing == "authors" else sum(votes)
    anchor = [v / mass for v in votes]
    return [weight * a + (1 - weight) * s for a, s in zip(anchor, score, strict=True)]
