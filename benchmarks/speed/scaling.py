"""Seconds and bytes of a step against the number of samples, of classes and the batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import median

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.speed.search import NEIGHBORS, cached_under_way, random_bank
from benchmarks.speed.timing import in_turn
from benchmarks.speed.votes import cast_votes, random_votes
from tllib_ancon.self_training.neighbors import ExactSearch
from tllib_ancon.self_training.votes import SparseVotes

USUAL = {"N": 100_000, "K": 1000, "B": 64}
VOTE_SIZES = {"N": (10_000, 100_000, 1_000_000, 10_000_000), "K": (300, 3000, 30_000), "B": (16, 64, 256, 1024)}
SEARCH_SIZES = {"N": (6250, 12_500, 25_000, 50_000, 100_000), "B": (16, 64, 256)}
USUAL_SEARCH = {"N": 25_000, "B": 64}
FEATURE_DIM = 256
ROUNDS = {"votes: update": 40, "votes: read": 40, "NRC, exact": 3, "NRC, cached": 5}


@dataclass(frozen=True)
class Point:
    """One step at one size: what it does, which size was varied, seconds, and bytes of the tensors it allocates."""

    what: str
    varied: str
    size: int
    seconds: float
    allocated: int


class _Allocations(TorchDispatchMode):
    """Adds up the bytes of every new tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        output = function(*args, **(kwargs or {}))
        given = {tensor.untyped_storage().data_ptr() for tensor in _tensors(args)}
        made = [t for t in _tensors(output) if t.untyped_storage().data_ptr() not in given]
        self.bytes += sum(tensor.nbytes for tensor in made)
        return output


def _tensors(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for item in value for tensor in _tensors(item)] if isinstance(value, (tuple, list)) else []


def measure() -> list[Point]:
    """The votes and NRC's two searches, one size varied at a time."""
    grids = ((_votes, VOTE_SIZES), (_search, SEARCH_SIZES))
    return [p for steps, grid in grids for varied, sizes in grid.items() for size in sizes for p in steps(varied, size)]


def _votes(varied: str, size: int) -> list[Point]:
    sizes = {**USUAL, varied: size}
    store = SparseVotes(sizes["N"], sizes["K"])
    cast_votes(store, epochs=2)
    batches = cycle(random_votes(store, 2 * ROUNDS["votes: update"], sizes["B"]))
    steps = {"votes: update": lambda: store.add(*next(batches)), "votes: read": lambda: store.read(next(batches)[0])}
    return [_point(what, varied, size, step) for what, step in steps.items()]


def _search(varied: str, size: int) -> list[Point]:
    sizes = {**USUAL_SEARCH, varied: size}
    bank = random_bank(sizes["N"], FEATURE_DIM)
    indices = torch.randint(sizes["N"], (sizes["B"],), generator=torch.Generator().manual_seed(1))
    exact, cached = ExactSearch(sizes["N"], FEATURE_DIM, NEIGHBORS, NEIGHBORS), cached_under_way(bank)
    steps = {"NRC, exact": lambda: exact(indices, bank), "NRC, cached": lambda: cached(indices, bank)}
    return [_point(what, varied, size, step) for what, step in steps.items()]


def _point(what: str, varied: str, size: int, step: Callable[[], object]) -> Point:
    seconds = median(in_turn({what: step}, ROUNDS[what])[what])
    return Point(what, varied, size, seconds, int(median(_allocated(step) for _ in range(3))))


def _allocated(step: Callable[[], object]) -> int:
    allocations = _Allocations()
    with allocations:
        step()
    return allocations.bytes


def draw(points: Sequence[Point], path: Path) -> None:
    """Seconds in the upper row and bytes in the lower against N, K and B, both axes logarithmic."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 7), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 3, sharey="row")
    labels = {"N": "samples N", "K": "classes K", "B": "batch B"}
    for column, (varied, label) in enumerate(labels.items()):
        chosen = [point for point in points if point.varied == varied]
        for what in dict.fromkeys(point.what for point in chosen):
            curve = [point for point in chosen if point.what == what]
            sizes = [point.size for point in curve]
            panels[0, column].loglog(sizes, [point.seconds for point in curve], "o-", label=what)
            panels[1, column].loglog(sizes, [point.allocated for point in curve], "o-", label=what)
        panels[1, column].set_xlabel(label)
        for panel in panels[:, column]:
            panel.grid(alpha=0.3, which="both")
    panels[0, 0].set_ylabel("seconds a step, one core")
    panels[1, 0].set_ylabel("bytes allocated a step")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    usual, search = _sizes(USUAL), _sizes({**USUAL_SEARCH, "D": FEATURE_DIM})
    figure.suptitle(f"one size varied at a time; else {usual} for sparse votes, {search} for NRC's search")
    figure.savefig(path, dpi=150, format="png")


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {size:,}" for name, size in sizes.items())
