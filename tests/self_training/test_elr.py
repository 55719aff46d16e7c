from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.self_training.naive import softmax
from tllib_ancon.errors import UserError
from tllib_ancon.self_training import EarlyLearningRegularization


def naive_loss(memory: dict[int, list[float]], indices, logits, coefficient: float, beta: float) -> float:
    total = 0.0
    for index, row in zip(indices, logits, strict=True):
        predictions = [min(max(p, 1e-4), 1 - 1e-4) for p in softmax(row)]
        old = memory.get(index, [0.0] * len(row))
        memory[index] = [beta * t + (1 - beta) * p / sum(predictions) for t, p in zip(old, predictions, strict=True)]
        agreement = sum(t * p for t, p in zip(memory[index], predictions, strict=True))
        total += math.log(1 - agreement)
    return coefficient * total / len(indices)


def test_against_a_naive_transcription() -> None:
    generator = torch.Generator().manual_seed(0)
    elr, memory = EarlyLearningRegularization(10, 4, coefficient=2.0, beta=0.7), {}
    for _ in range(8):
        indices, logits = torch.randperm(10, generator=generator)[:5], 3 * torch.randn(5, 4, generator=generator)
        expected = naive_loss(memory, indices.tolist(), logits.tolist(), 2.0, 0.7)
        assert float(elr(indices, logits)) == pytest.approx(expected, rel=1e-5)


def test_values_recorded_from_the_authors_code(golden: dict[str, np.ndarray]) -> None:
    elr = EarlyLearningRegularization(int(golden["N"]), int(golden["K"]))
    for step in range(int(golden["steps"])):
        logits = torch.from_numpy(golden["logits"][step]).requires_grad_()
        loss = elr(torch.from_numpy(golden["idx"][step]), logits)
        assert float(loss.detach()) == pytest.approx(float(golden["elr"][step]), rel=1e-5)
        loss.backward()
        torch.testing.assert_close(logits.grad, torch.from_numpy(golden["elr_grad"][step]), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(("options", "message"), [({"coefficient": -1}, "coefficient"), ({"beta": 1}, "beta")])
def test_bad_options(options: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        EarlyLearningRegularization(4, 3, **options)


def test_bad_index() -> None:
    with pytest.raises(UserError, match="outside"):
        EarlyLearningRegularization(4, 3)(torch.tensor([9]), torch.zeros(1, 3))
