"""Commands that are cut off in an epoch, in this process."""

import signal

from tllib_ancon.cli.main import main
from tllib_ancon.training.adaptation import Adaptation


def counting(monkeypatch, loop=Adaptation, cut=None):
    """The epochs that are trained from here on, up to one that is ``cut``."""
    train_epoch = loop._train_epoch
    epochs = []

    def counted(self, epoch):
        if epoch == cut:
            raise KeyboardInterrupt
        epochs.append(epoch)
        return train_epoch(self, epoch)

    monkeypatch.setattr(loop, "_train_epoch", counted)
    return epochs


def cut_in_the_second_epoch(monkeypatch, words, loop=Adaptation):
    """Run a command until its adaptation, or its training of a source model, has one epoch behind it."""
    with monkeypatch.context() as patch:
        counting(patch, loop, cut=2)
        assert main(words) == 128 + signal.SIGINT
