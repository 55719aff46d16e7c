"""ETA's loss beside its equations in double precision."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cosine_similarity

from tllib_ancon.self_training import SampleEfficientEntropy, softmax_entropy

ROWS = st.lists(st.lists(st.floats(-9, 9, width=32), min_size=3, max_size=3), min_size=1, max_size=5)
LARGEST = 0.4 * math.log(3)


@given(st.lists(ROWS, min_size=1, max_size=4), st.floats(0.3, 0.95))
def test_selected_entropy(batches, margin):
    """The moving average is None before it has taken in a prediction; weights get no gradient."""
    module = SampleEfficientEntropy(3, similarity_margin=margin)
    average = None
    for batch in batches:
        logits = torch.tensor(batch, requires_grad=True)
        predictions = logits.detach().double().softmax(1)
        entropies = torch.special.entr(predictions).sum(1)
        selected = entropies < LARGEST
        if average is not None:
            selected &= cosine_similarity(predictions, average[None]) < margin
        if selected.any():
            mean = predictions[selected].mean(0)
            average = mean if average is None else 0.9 * average + 0.1 * mean
        weights = (LARGEST - entropies).exp() * selected / max(1, int(selected.sum()))
        expected = softmax_entropy(logits) @ weights.float()
        loss = module(logits)
        torch.testing.assert_close(loss, expected, rtol=1e-3, atol=1e-5)
        gradients = [torch.autograd.grad(value, logits)[0] for value in (loss, expected)]
        torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-5)
        remembered = torch.zeros(3) if average is None else average.float()
        torch.testing.assert_close(module.average, remembered, rtol=1e-4, atol=1e-5)


@given(ROWS)
def test_entropy_of_predictions(batch):
    logits = torch.tensor(batch)
    expected = torch.special.entr(logits.double().softmax(1)).sum(1)
    torch.testing.assert_close(softmax_entropy(logits).double(), expected, rtol=1e-4, atol=1e-5)
