"""SHOT's labels are those of the nearest centroids, in any order, precision and number of passes."""

import torch

from tests.support.naive import argmax, dot, softmax, unit
from tllib_ancon.self_training import CentroidPseudoLabels

N = 60
K = 5
D = 6


def nearest(directions, row):
    return max(directions, key=lambda k: dot(row, directions[k]))


def naive_labels(features, logits):
    rows = [unit([*feature, 1.0]) for feature in features]
    affinities = [softmax(row) for row in logits]
    labels = [argmax(row) for row in logits]
    for _ in range(2):
        centroids = {}
        for k in sorted(set(labels)):
            weights = [affinity[k] for affinity in affinities]
            columns = zip(*rows, strict=True)
            centroids[k] = [dot(weights, column) / sum(weights) for column in columns]
        directions = {k: unit(centroid) for k, centroid in centroids.items()}
        labels = [nearest(directions, row) for row in rows]
        affinities = []
        for label in labels:
            affinities.append([float(k == label) for k in range(len(logits[0]))])
    return labels


def random_pass(seed):
    """Clusters whose logits are often wrong, and never largest for the last class."""
    generator = torch.Generator().manual_seed(seed)
    clusters = torch.randint(K - 1, (N,), generator=generator)
    centres = 2 * torch.randn(K, D, generator=generator)
    features = centres[clusters] + torch.randn(N, D, generator=generator)
    logits = torch.nn.functional.one_hot(clusters, K) + torch.randn(N, K, generator=generator)
    logits[:, -1] = logits.amin(1) - 1
    return torch.arange(N), features, logits


def test_labels_of_each_pass_against_a_naive_transcription():
    """Stored in any order and precision; a batch may repeat a sample."""
    labels = CentroidPseudoLabels(N, K, D)
    batch = torch.tensor([5, 0, 5])
    for seed in range(8):
        indices, features, logits = random_pass(seed)
        features = features.half() if seed % 2 else features
        expected = naive_labels(features.tolist(), logits.tolist())
        labels.initialize(indices.flip(0), features.flip(0), logits.flip(0))
        assert labels(indices).tolist() == expected
        assert labels(batch.int()).tolist() == [expected[5], expected[0], expected[5]]
        assert K - 1 not in expected
        assert expected != logits.argmax(1).tolist()
