"""The targets without λ are those of the equation."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from tllib_ancon.self_training import AdaptiveSmoothing

SAMPLES = 6
CLASSES = 3


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=8), st.sampled_from([0.0, 0.5, 0.9]))
def test_this_visit_counts_as_one_more_vote(draws, beta):
    adaptive = AdaptiveSmoothing(SAMPLES, CLASSES, beta=beta)
    for draw in draws:
        generator = torch.Generator().manual_seed(draw)
        indices = torch.randperm(SAMPLES, generator=generator)[:4]
        logits = 3 * torch.randn(4, CLASSES, generator=generator)
        counts = adaptive.ensemble.votes(indices) + torch.eye(CLASSES)[logits.argmax(1)]
        torch.testing.assert_close(adaptive(indices, logits), counts / counts.sum(1, keepdim=True))
