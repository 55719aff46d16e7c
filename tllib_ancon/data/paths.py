"""Many paths in little memory, and whether they stay below their root."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray


class Paths(Sequence[str]):
    """Paths in one block of bytes: a list of strings would take five times the memory and be copied by every worker.

    Args:
        paths: absolute, or relative to the working directory
        root: folder whose name is kept once. Default: none
    """

    def __init__(self, paths: Iterable[str], root: str | os.PathLike[str] = ""):
        self.root = os.fspath(root)
        self._prefix = os.path.join(self.root, "")
        text, ends = bytearray(), array("q", [0])
        for path in paths:
            text += os.fsencode(path.removeprefix(self._prefix))
            ends.append(len(text))
        offsets = np.asarray(ends)
        self._text = bytes(text)
        self._starts, self._ends = offsets[:-1], offsets[1:]

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        relative = self.relative(index)
        return relative if os.path.isabs(relative) else self._prefix + relative

    def __iter__(self) -> Iterator[str]:
        return (self[position] for position in range(len(self)))

    def relative(self, index: int) -> str:
        """The path below the root; the whole path where it does not lie there."""
        return os.fsdecode(self._text[self._starts[index] : self._ends[index]])

    def take(self, positions: NDArray[np.int64]) -> Paths:
        """The paths at these positions, in this order."""
        taken = object.__new__(Paths)
        taken.root, taken._prefix, taken._text = self.root, self._prefix, self._text
        taken._starts, taken._ends = self._starts[positions], self._ends[positions]
        return taken

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return len(self._text) + self._starts.nbytes + self._ends.nbytes


class Confined:
    """Whether paths stay below a root, all links followed; a folder is looked at once.

    Args:
        root: an existing folder
    """

    def __init__(self, root: str | os.PathLike[str]):
        self.root = os.path.realpath(root)
        self.folders: dict[str, bool] = {}

    def __call__(self, path: str) -> bool:
        folder = path.rpartition(os.sep)[0] or os.path.dirname(path)
        if folder not in self.folders:
            self.folders[folder] = self._holds(folder)
        return (self.folders[folder] and not os.path.islink(path)) or self._holds(path)

    def _holds(self, path: str) -> bool:
        real = os.path.realpath(path)
        return real == self.root or real.startswith(self.root.rstrip(os.sep) + os.sep)
