"""State whose precision does not depend on that of the model."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


class FixedPrecision(nn.Module):
    """A module whose buffers keep their types: ``.half()``, ``.double()`` and ``.to(dtype)`` may move them to another
    device and do no more, so that votes and moving averages lose no digit."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FixedPrecision:
        def move(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        super()._apply(move, recurse)  # type: ignore[no-untyped-call]
        return self
