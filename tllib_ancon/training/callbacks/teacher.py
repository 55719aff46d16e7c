"""The teacher of an adaptation: its predictions are made once, and its weight is chosen before the first step."""

from tllib_ancon.runtime.types import State
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.target_loaders import TargetLoaders
from tllib_ancon.training.teacher import Teacher
from tllib_ancon.training.trainer import Trainer


class TeacherPredictions(Callback):
    """Predict the images by the teacher after epoch 0, and choose its weight before the first step."""

    name = "teacher"

    def __init__(self, teacher: Teacher, loaders: TargetLoaders):
        teacher.open_loaders(loaders)
        self.teacher = teacher
        self.sample = loaders.sample

    def begin_epoch(self, trainer: Trainer) -> None:
        if trainer.epoch > 1 or not trainer.trains:
            return
        trainer.metrics[-1]["teacher_weight"] = self.teacher.choose_weight(self.sample, trainer.predict)
        trainer.progress.line(str(self.teacher))

    def after_epoch(self, trainer: Trainer) -> None:
        if trainer.epoch == 0:
            self.teacher.predict(trainer.predict)

    def state_dict(self) -> State:
        return self.teacher.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.teacher.load_state_dict(state)
