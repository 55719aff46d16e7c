"""Scores recorded once from :mod:`tests.selection.naive`, on inputs that no random generator makes."""

from __future__ import annotations

import math

import pytest
import torch

from tllib_ancon.selection import CRITERIA, aetta

IMAGES, CLASSES = 12, 4


def wave(phase: float = 0.0, scale: float = 3.0) -> torch.Tensor:
    """Logits (12, 4)."""
    rows = [[math.sin(1 + phase + 1.7 * i * i + 0.9 * i * k + 2.3 * k) for k in range(CLASSES)] for i in range(IMAGES)]
    return scale * torch.tensor(rows, dtype=torch.float64)


RECORDED = {
    "infomax": 0.4372755001963934,
    "corr_c": 0.6684718620073394,
    "mean_entropy": 0.8899886909306364,
    "marginal_entropy": 1.3272641911270298,
    "snd": 0.6673113699200726,
    "nuclear_norm": 0.6295282543657453,
}


@pytest.mark.parametrize("name", RECORDED)
def test_one_epoch(name: str) -> None:
    assert CRITERIA[name].function(wave().softmax(1)) == pytest.approx(RECORDED[name], rel=1e-9)


def test_aetta() -> None:
    passes = torch.stack([wave(0.05 + 0.1 * number).softmax(1) for number in range(3)])
    assert aetta(wave().softmax(1), passes) == pytest.approx(0.7567055762582274, rel=1e-12)
