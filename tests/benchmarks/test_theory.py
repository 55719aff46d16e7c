import itertools
import math
from pathlib import Path

import pytest
import torch
from torch import Generator

from benchmarks.theory.__main__ import TABLE, main
from benchmarks.theory.linear_model import (
    Setting,
    adapt,
    random_problem,
)
from benchmarks.theory.votes import majority_error
from tllib_ancon.self_training.ensemble import TemporalEnsemble


def generator(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def test_the_command_writes_the_committed_statements_and_verdicts(tmp_path: Path, capsys) -> None:
    assert main(["--out", str(tmp_path / "theory.md")]) == 0
    written = (tmp_path / "theory.md").read_text()
    assert capsys.readouterr().out == written
    verdicts = [
        [line.split(" | ")[:3] if line.startswith("| ") else line for line in text.splitlines()]
        for text in (written, TABLE.read_text())
    ]
    assert verdicts[0] == verdicts[1]
    assert "What the paper says: 8 of 20 statements hold" in written
    assert "What it does not say: 0 of 5 statements hold" in written
    assert "nan" not in written


@pytest.mark.parametrize("accuracies", [[0.3], [1.0, 0.0], [0.9, 0.55, 0.55], [0.2, 0.9, 0.8, 0.6, 0.7]])
def test_the_majority_errs_as_often_as_all_outcomes_say(accuracies: list[float]) -> None:
    naive = sum(
        math.prod(p if right else 1 - p for p, right in zip(accuracies, outcome, strict=True))
        for outcome in itertools.product([0, 1], repeat=len(accuracies))
        if 2 * sum(outcome) <= len(accuracies)
    )
    assert majority_error(torch.tensor(accuracies, dtype=torch.float64)) == pytest.approx(naive, abs=1e-12)


def test_adapt_is_ancon_with_normalised_votes_and_the_papers_convention() -> None:
    """The same run written out with the ensemble that training uses."""
    draws = generator(7)
    problem = random_problem(12, 2, 3, draws, scale=2.0)
    theta = 2 * torch.randn(2, 3, generator=draws, dtype=torch.float64)
    setting = Setting(outer_steps=6, inner_steps=40, batch_size=4, learning_rate=1.0, runs=1)
    run = adapt(problem, theta, setting, generator(1), lambda terms: terms.noise.new_full((1,), 0.6))
    ensemble = TemporalEnsemble(12, 3, beta=0.9, convention="paper", normalize=True)
    gaps, minibatches = [float(problem.gap(theta))], generator(1)
    for _ in range(setting.outer_steps):
        logits = problem.inputs @ theta
        smooth = ensemble(torch.arange(12), logits).double()
        hard = torch.eye(3, dtype=torch.float64)[logits.argmax(dim=1)]
        smooth = torch.where(smooth.sum(dim=1, keepdim=True) > 0, smooth, hard)
        targets = 0.4 * hard + 0.6 * smooth
        for _ in range(setting.inner_steps):
            batch = torch.randint(12, (1, 4), generator=minibatches)[0]
            x = problem.inputs[batch]
            theta = theta - x.T @ ((x @ theta).softmax(dim=1) - targets[batch]) / 4
        gaps.append(float(problem.gap(theta)))
    assert run.gaps[:, 0].tolist() == pytest.approx(gaps, abs=1e-6)
    assert not torch.allclose(smooth, hard), "the ensemble never differed from the pseudo-labels"
