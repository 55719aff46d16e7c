"""How many confident votes each class of each sample has: a dense and a sparse store, one interface."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.errors import UserError
from tllib_ancon.self_training.checks import choice, size
from tllib_ancon.self_training.options import STORAGES
from tllib_ancon.self_training.precision import FixedPrecision

LARGEST_DENSE_NUM_CLASSES = 256
SLOTS_PER_GROWTH = 4


class DenseVotes(FixedPrecision):
    """Votes as one (N, K) table, 4 bytes an entry.

    Args:
        num_samples (int): N, images of the target set.
        num_classes (int): K.
        weighted (bool): votes carry real weights (float32) instead of being counted (int32). Default: False

    Inputs of :meth:`add`:
        - indices: (B,) int64 or int32 in [0, N); repeated indices are repeated visits
        - classes: (B,) int64 in [0, K)
        - weights: (B,) real, or bool where votes are counted

    Outputs of :meth:`read`: (B, K) float32, the votes so far
    """

    counts: Tensor

    def __init__(self, num_samples: int, num_classes: int, weighted: bool = False):
        super().__init__()
        dtype = torch.float32 if weighted else torch.int32
        self.register_buffer("counts", torch.zeros(num_samples, num_classes, dtype=dtype))

    def add(self, indices: Tensor, classes: Tensor, weights: Tensor) -> None:
        indices = indices.to(classes.device, non_blocking=True)
        self.counts.index_put_((indices, classes), weights.to(self.counts.dtype), accumulate=True)

    def add_distributions(self, indices: Tensor, predictions: Tensor) -> None:
        """Add a whole row (B, K) to each sample: what soft predictions need."""
        indices = indices.to(predictions.device, non_blocking=True)
        self.counts.index_put_((indices,), predictions.to(self.counts.dtype), accumulate=True)

    def read(self, indices: Tensor) -> Tensor:
        return self.counts.index_select(0, indices.to(self.counts.device, non_blocking=True)).float()


class SparseVotes(FixedPrecision):
    """Votes of the few classes that ever got one, exact and without a cap.

    Each sample owns a row of slots, a slot holding a class and its votes. All rows are widened by
    four slots when one sample needs more, so memory is 6 bytes (K < 32,768) or 8 bytes a slot and sample, and
    an addition or a read touches the rows of the batch only.

    Whether a row could overflow is known on the host, from how often each sample was visited since its row was last
    counted, so that a step on an accelerator waits for it about once an epoch at most, given indices on the CPU.

    Args, inputs and outputs: as :class:`DenseVotes`

    Raises:
        UserError: a state of another number of classes, or one that no votes lead to
    """

    classes: Tensor
    counts: Tensor

    def __init__(self, num_samples: int, num_classes: int, weighted: bool = False):
        super().__init__()
        self.num_classes = num_classes
        class_dtype = torch.int16 if num_classes <= torch.iinfo(torch.int16).max else torch.int32
        count_dtype = torch.float32 if weighted else torch.int32
        shape = (num_samples, SLOTS_PER_GROWTH)
        self.register_buffer("classes", torch.full(shape, -1, dtype=class_dtype))
        self.register_buffer("counts", torch.zeros(shape, dtype=count_dtype))
        self._most_used_slots = torch.zeros(num_samples, dtype=torch.int16)

    def add(self, indices: Tensor, classes: Tensor, weights: Tensor) -> None:
        self._reserve(indices)
        device = self.counts.device
        rows = indices.to(device, non_blocking=True).long()
        keys, order = (rows * self.num_classes + classes).sort()
        rows, classes, weights = rows[order], classes[order], weights[order].to(self.counts.dtype)

        first = _starts_a_run(keys)
        run = first.cumsum(0) - 1
        total = torch.zeros_like(weights).index_add_(0, run, weights)[run] * first

        slots = self.classes[rows]
        match = slots == classes[:, None]
        known = match.any(1)
        opens = first & ~known & (total > 0)
        used = (slots >= 0).sum(1)
        opened_before = opens.cumsum(0) - opens.long()
        opened_in_earlier_rows = (opened_before * _starts_a_run(rows)).cummax(0).values
        free_slot = used + opened_before - opened_in_earlier_rows
        slot = torch.where(known, match.long().argmax(1), torch.where(opens, free_slot, 0))

        # Empty slots hold -1: adding class + 1 writes the class, adding 0 leaves a slot as it is.
        self.classes.index_put_((rows, slot), ((classes + 1) * opens).to(self.classes.dtype), accumulate=True)
        self.counts.index_put_((rows, slot), total, accumulate=True)

    def read(self, indices: Tensor) -> Tensor:
        rows = indices.to(self.counts.device, non_blocking=True)
        slots = self.classes[rows].long()
        votes = torch.zeros(len(rows), self.num_classes, device=self.counts.device)
        return votes.scatter_add_(1, slots.clamp(min=0), self.counts[rows].float())

    @torch.inference_mode(False)
    def _reserve(self, indices: Tensor) -> None:
        """Widen the rows if a sample of this batch could run out of slots."""
        visited = indices.cpu().long()
        self._most_used_slots.index_add_(0, visited, torch.ones(len(visited), dtype=torch.int16))
        if not self._overflows(visited):
            return
        self._most_used_slots = (self.classes >= 0).sum(1, dtype=torch.int16).cpu()
        self._most_used_slots.index_add_(0, visited, torch.ones(len(visited), dtype=torch.int16))
        if self._overflows(visited):
            missing = int(self._most_used_slots[visited].max()) - self.counts.shape[1]
            self._widen(-(-missing // SLOTS_PER_GROWTH) * SLOTS_PER_GROWTH)

    def _overflows(self, visited: Tensor) -> bool:
        return bool((self._most_used_slots[visited] > self.counts.shape[1]).any())

    def _widen(self, slots: int) -> None:
        self.classes = nn.functional.pad(self.classes, (0, slots), value=-1)
        self.counts = nn.functional.pad(self.counts, (0, slots))

    def get_extra_state(self) -> int:
        return self.num_classes

    def set_extra_state(self, state: int) -> None:
        """Nothing to set: the number of classes is compared before the state is loaded."""

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        num_classes = state_dict.get(prefix + "_extra_state", self.num_classes)
        if num_classes != self.num_classes:
            raise UserError(f"the loaded votes are of {num_classes} classes, not of {self.num_classes}")
        saved = state_dict.get(prefix + "classes")
        if saved is not None:
            _check_slots(saved, state_dict.get(prefix + "counts"), self.num_classes)
        if saved is not None and saved.shape[:1] == self.classes.shape[:1]:
            self.classes = self.classes.new_full(saved.shape, -1)
            self.counts = self.counts.new_zeros(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._most_used_slots = (self.classes >= 0).sum(1, dtype=torch.int16).cpu()


def _check_slots(classes: Tensor, counts: Tensor | None, num_classes: int) -> None:
    """Raise unless each row has classes in its first slots, each once, and no votes in the others."""
    if counts is None or classes.ndim != 2 or counts.shape != classes.shape:
        raise UserError("the loaded votes have no count for each of their classes")
    classes, empty = classes.long(), classes < 0
    once = classes.masked_fill(empty, num_classes).sort(1).values
    once_each = ((once[:, 1:] > once[:, :-1]) | (once[:, 1:] == num_classes)).all()
    in_front = (empty[:, 1:] | ~empty[:, :-1]).all()
    counted = (counts >= 0).all() and (counts[empty] == 0).all()
    if not (once_each and in_front and counted and (classes >= -1).all() and (classes < num_classes).all()):
        raise UserError(f"the loaded votes are not of {num_classes} classes")


def create_votes(
    num_samples: int, num_classes: int, storage: str = "auto", weighted: bool = False
) -> DenseVotes | SparseVotes:
    """The store named by ``storage``: ``"dense"``, ``"sparse"``, or ``"auto"``: dense up to K = 256.

    Raises:
        UserError: N or K below 1, or another name
    """
    num_samples, num_classes = size("num_samples", num_samples), size("num_classes", num_classes)
    if choice("storage", storage, STORAGES) == "auto":
        storage = "dense" if num_classes <= LARGEST_DENSE_NUM_CLASSES else "sparse"
    if storage == "dense":
        return DenseVotes(num_samples, num_classes, weighted)
    return SparseVotes(num_samples, num_classes, weighted)


def _starts_a_run(values: Tensor) -> Tensor:
    first = torch.ones_like(values, dtype=torch.bool)
    first[1:] = values[1:] != values[:-1]
    return first
