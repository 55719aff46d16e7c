"""SHOT's labels are those of the nearest centroids, in any order, precision and number of passes."""

import torch
from torch.nn.functional import cross_entropy, normalize, one_hot

from tllib_ancon import infomax, methods
from tllib_ancon.self_training import CentroidPseudoLabels

N = 60
K = 5
D = 6


def naive_labels(features, logits):
    """By the equations in double precision, class by class."""
    rows = normalize(torch.cat([features.double(), torch.ones(N, 1)], 1))
    affinities = logits.double().softmax(1)
    labels = logits.argmax(1)
    for _ in range(2):
        similarities = torch.full((N, K), -torch.inf).double()
        for k in labels.unique():
            centroid = affinities[:, k] @ rows / affinities[:, k].sum()
            similarities[:, k] = rows @ normalize(centroid, dim=0)
        labels = similarities.argmax(1)
        affinities = one_hot(labels, K).double()
    return labels


def random_pass(seed):
    """Clusters whose logits are often wrong, and never largest for the last class."""
    generator = torch.Generator().manual_seed(seed)
    clusters = torch.randint(K - 1, (N,), generator=generator)
    centres = 2 * torch.randn(K, D, generator=generator)
    features = centres[clusters] + torch.randn(N, D, generator=generator)
    logits = one_hot(clusters, K) + torch.randn(N, K, generator=generator)
    logits[:, -1] = logits.amin(1) - 1
    return torch.arange(N), features, logits


def test_labels_of_each_pass():
    """Stored in any order and precision; a batch may repeat a sample."""
    labels = CentroidPseudoLabels(N, K, D)
    batch = torch.tensor([5, 0, 5])
    for seed in range(8):
        indices, features, logits = random_pass(seed)
        features = features.half() if seed % 2 else features
        expected = naive_labels(features, logits)
        labels.initialize(indices.flip(0), features.flip(0), logits.flip(0))
        assert torch.equal(labels(indices), expected)
        assert torch.equal(labels(batch.int()), expected[batch])
        assert K - 1 not in expected
        assert not torch.equal(expected, logits.argmax(1))


def test_the_loss_is_information_maximisation_and_a_share_of_the_cross_entropy():
    indices, features, logits = random_pass(0)
    shot = methods.create("shot", num_samples=N, num_classes=K, feature_dim=D, shot_coefficient=0.2)
    shot.begin_epoch(0, indices, features, logits)
    expected = 0.2 * cross_entropy(logits, naive_labels(features, logits)) - infomax(logits.softmax(1))
    torch.testing.assert_close(shot(indices, logits, features), expected)
