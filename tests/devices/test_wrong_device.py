"""A tensor that is left on the wrong device ends the run: each case breaks one line of the package on purpose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.devices.stand_in import StandIn
from tests.devices.test_every_method import domains, run
from tllib_ancon.self_training.elr import EarlyLearningRegularization
from tllib_ancon.self_training.method import Method
from tllib_ancon.self_training.shot import CentroidPseudoLabels
from tllib_ancon.self_training.votes import DenseVotes, SparseVotes

__all__ = ["domains"]


def indices_stay_on_the_cpu(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DenseVotes, "read", lambda self, indices: self.counts.index_select(0, indices).float())


def slots_are_read_on_the_cpu(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        SparseVotes,
        "read",
        lambda self, indices: torch.zeros(len(indices), self.num_classes).scatter_add_(
            1, self.classes[indices].long().clamp(min=0), self.counts[indices].float()
        ),
    )


def the_state_is_no_buffer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EarlyLearningRegularization, "register_buffer", object.__setattr__)


def the_bank_is_read_without_waiting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(torch.Tensor, "cpu", lambda tensor: tensor.to("cpu", non_blocking=True))


def the_method_stays_on_the_cpu(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Method, "to", lambda self, device: self)


def pseudo_labels_stay_on_the_cpu(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CentroidPseudoLabels, "forward", lambda self, indices: self.labels.cpu()[indices])


def a_tensor_is_made_without_its_device(patch: pytest.MonkeyPatch) -> None:
    def one_hot_on_cpu(labels: Tensor, num_classes: int) -> Tensor:
        return torch.zeros(len(labels), num_classes).scatter_(1, labels.unsqueeze(1), 1.0)

    patch.setattr("tllib_ancon.self_training.anchored.one_hot", one_hot_on_cpu)


BROKEN: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], dict[str, Any]]] = {
    "indices": (indices_stay_on_the_cpu, {"method": "ancon"}),
    "slots": (slots_are_read_on_the_cpu, {"method": "ancon", "storage": "sparse"}),
    "state": (the_state_is_no_buffer, {"method": "elr"}),
    "method": (the_method_stays_on_the_cpu, {"method": "nrc"}),
    "pseudo-labels": (pseudo_labels_stay_on_the_cpu, {"method": "shot"}),
    "a copy": (the_bank_is_read_without_waiting, {"method": "nrc", "search": "cached"}),
    "made": (a_tensor_is_made_without_its_device, {"method": "ancon"}),
}


@pytest.mark.parametrize("case", BROKEN)
def test_it_fails_here_and_nowhere_else(domains: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it, settings = BROKEN[case]
    break_it(monkeypatch)
    run(domains, **settings)  # on the CPU nothing is wrong
    with StandIn(), pytest.raises((RuntimeError, TypeError), match=r"same device|no values yet"):
        run(domains, **settings)
