"""Commands that are cut off in an epoch, in this process."""

from __future__ import annotations

import signal

import pytest

from tllib_ancon.cli.main import main
from tllib_ancon.training.adaptation import Adaptation
from tllib_ancon.training.source_training import SourceTraining


def cut_in_the_second_epoch(monkeypatch: pytest.MonkeyPatch, words: list[str], loop: type = Adaptation) -> None:
    """Run a command until its adaptation, or its training of a source model, has one epoch behind it."""
    train_epoch = loop._train_epoch

    def cut(self: Adaptation | SourceTraining, epoch: int) -> dict[str, float]:
        if epoch == 2:
            raise KeyboardInterrupt
        return train_epoch(self, epoch)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_train_epoch", cut)
        assert main(words) == 128 + signal.SIGINT


def counting(monkeypatch: pytest.MonkeyPatch, loop: type = Adaptation) -> list[int]:
    """The epochs that are trained from here on."""
    train_epoch, epochs = loop._train_epoch, []

    def counted(self: Adaptation | SourceTraining, epoch: int) -> dict[str, float]:
        epochs.append(epoch)
        return train_epoch(self, epoch)

    monkeypatch.setattr(loop, "_train_epoch", counted)
    return epochs
