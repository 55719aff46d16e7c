from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.self_training.naive import NaiveELR
from tllib_ancon.errors import UserError
from tllib_ancon.self_training import EarlyLearningRegularization


def test_against_a_naive_transcription() -> None:
    generator = torch.Generator().manual_seed(0)
    elr, naive = EarlyLearningRegularization(10, 4, coefficient=2.0, beta=0.7), NaiveELR(2.0, 0.7)
    for _ in range(8):
        indices = torch.randperm(10, generator=generator)[:5]
        logits = (3 * torch.randn(5, 4, generator=generator)).requires_grad_()
        loss, gradient = naive.visit(indices.tolist(), logits.tolist())
        measured = elr(indices, logits)
        measured.backward()
        assert float(measured.detach()) == pytest.approx(loss, rel=1e-5)
        torch.testing.assert_close(logits.grad, torch.tensor(gradient), rtol=1e-4, atol=1e-7)


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
