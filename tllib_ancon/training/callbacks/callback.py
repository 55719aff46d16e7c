"""The base class of callbacks: what happens around the steps and the epochs of a training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tllib_ancon.runtime.types import State

if TYPE_CHECKING:
    from tllib_ancon.training.trainer import Trainer


class Callback:
    """What happens at the events of a training; a subclass overrides some of them.

    The trainer calls the callbacks in their order, in every process of a launch. They read and change it:
    ``trainer.metrics[-1]`` is the record of the current epoch, ``trainer.network`` the model. Epoch 0 of an adaptation
    scores the source model and has no step, so that it has :meth:`after_epoch` alone.

    Attributes:
        name: under which a run stores the state of the callback; empty for one without a state
    """

    name = ""

    def before_training(self, trainer: Trainer) -> None:
        """Training begins, or resumes: the state of the last complete epoch is restored."""

    def begin_epoch(self, trainer: Trainer) -> None:
        """The steps of an epoch begin."""

    def after_step(self, trainer: Trainer) -> None:
        """A step is made: ``trainer.step`` is its number in the epoch."""

    def after_epoch(self, trainer: Trainer) -> None:
        """The steps of an epoch are made."""

    def state_dict(self) -> State:
        """What the callback needs to resume: tensors, numbers, text, and lists and dicts of them."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """Continue from a state."""
