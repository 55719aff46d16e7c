from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

SHARED = Path(__file__).resolve().parents[2] / "shared"
"""Development data that lies beside a checkout and is never part of it."""

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def golden() -> dict[str, np.ndarray]:
    """Thirty consecutive steps recorded from the authors' code."""
    path = SHARED / "golden" / "authors_code_steps.npz"
    if not path.is_file():
        pytest.skip("the values recorded from the authors' code are not beside this checkout")
    with np.load(path, allow_pickle=False) as data:
        return {name: data[name] for name in data.files}
