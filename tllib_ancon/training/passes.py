"""Predictions of the current model on the sample, the hold-out and the target. Each is made at most once an epoch."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.data.transforms import View, mirror
from tllib_ancon.self_training.method import mean_prediction
from tllib_ancon.training.inference import Outputs
from tllib_ancon.training.target_loaders import TargetLoaders

Predict = Callable[[ImageLoader, View | None], Outputs]


@dataclass
class Passes:
    """Predictions of the model, made when they are first asked for, until :meth:`forget`.

    Args:
        loaders: of the target
        predict: a loader and another view of its images, or None -> outputs of the model
        mirrors: whether predictions on the target are the mean over images and their mirrors
    """

    loaders: TargetLoaders
    predict: Predict
    mirrors: bool
    _outputs: dict[tuple[ImageLoader, View | None], Outputs] = field(default_factory=dict, init=False)

    def forget(self) -> None:
        """The model changes: predictions are made anew."""
        self._outputs = {}

    def target_by_one_view(self) -> Outputs:
        return self._predicted_once(self.loaders.target)

    def target(self) -> Outputs:
        """Predictions on the whole target, by the views of the run."""
        outputs = self.target_by_one_view()
        if not self.mirrors:
            return outputs
        mirrored = self._predicted_once(self.loaders.target, mirror)
        return outputs._replace(logits=mean_prediction(outputs.logits, mirrored.logits))

    def adapted(self) -> Outputs:
        """Predictions on all images to adapt on. Without a hold-out they score an epoch, too."""
        if self.loaders.num_held_out:
            return self._predicted_once(self.loaders.adapted)
        return self.target()

    def sample(self) -> Outputs:
        """Predictions on the sample. Their indices are positions among the images to adapt on, as those of a step."""
        outputs = self._predicted_once(self.loaders.sample)
        return outputs._replace(indices=self.loaders.sampled[outputs.indices])

    def first_of_sample(self) -> Outputs:
        return self._predicted_once(self.loaders.first_of_sample)

    def scored(self) -> Outputs:
        """Predictions that score an epoch, by one view: on the hold-out, or on the sample if nothing is held out."""
        if self.loaders.num_held_out:
            return self._predicted_once(self.loaders.held_out)
        if (self.loaders.target, None) not in self._outputs:
            return self.sample()
        outputs = self.target_by_one_view()
        return Outputs(*(part[self.loaders.sampled.to(part.device)] for part in outputs))

    def _predicted_once(self, loader: ImageLoader, view: View | None = None) -> Outputs:
        if (loader, view) not in self._outputs:
            self._outputs[loader, view] = self.predict(loader, view)
        return self._outputs[loader, view]
