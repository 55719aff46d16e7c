"""Commands that are cut off in an epoch, in this process."""

import signal

from tllib_ancon.cli.main import main
from tllib_ancon.training.trainer import Trainer


def counting(monkeypatch, cut=None):
    """The epochs that are trained from here on, up to one that is ``cut``."""
    train_epoch = Trainer._train_epoch
    epochs = []

    def counted(trainer, *arguments):
        if trainer.epoch == cut:
            raise KeyboardInterrupt
        epochs.append(trainer.epoch)
        return train_epoch(trainer, *arguments)

    monkeypatch.setattr(Trainer, "_train_epoch", counted)
    return epochs


def cut_in_the_second_epoch(monkeypatch, words):
    """Run a command until its adaptation, or its training of a source model, has one epoch behind it."""
    with monkeypatch.context() as patch:
        counting(patch, cut=2)
        assert main(words) == 128 + signal.SIGINT
