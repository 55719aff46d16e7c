"""Devices and mixed precision, by Accelerate."""

from __future__ import annotations

from typing import Any


def create_accelerator(mixed_precision: str) -> Any:
    """An ``accelerate.Accelerator``, also after one of another precision in the same process, which it remembers."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state()
    return Accelerator(mixed_precision=mixed_precision)
