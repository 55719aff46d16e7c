"""The target in its parts, and the predictions of the current model on each, made at most once an epoch."""

from collections.abc import Callable

import torch
from torch import Tensor

from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.loading import ImageLoader, UnlabelledImages, evaluation_loader, hold_out
from tllib_ancon.data.transforms import View, mirror
from tllib_ancon.opening.defaults import USUAL_BATCH
from tllib_ancon.opening.transforms import Transforms
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.processes import Shard
from tllib_ancon.self_training.method import Method, mean_prediction
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.inference import Outputs
from tllib_ancon.training.trainer import Trainer

SAMPLE = 1024
"""Images at most, from which the mixing weight and label-free scores are estimated."""


class Passes(Callback):
    """The target, divided into images to adapt on and images held out, and predictions of the model on them. They are
    made when they are first asked for, until :meth:`forget`. Each loader yields this process's share.

    Attributes:
        adapted_indices: positions in the target of the images to adapt on, of all processes
        shard: which of these this process visits
        num_held_out: images that select the epoch; with none those adapted on do
        adapted_images: what the steps see
        sampled: positions of a sample among the images to adapt on; all, where the method does not train or a hold-out
            selects the epoch
        loaders: of the parts that are predicted, by name
        mirrors: whether predictions on the target are the mean over images and their mirrors
    """

    predict: Callable[[ImageLoader, View | None], Outputs]

    def __init__(self, target: ImageSource, settings: AdaptConfig, transforms: Transforms):
        self.num_images = len(target)
        held_out_share = 0.0 if settings.criterion == "last" else settings.hold_out
        self.adapted_indices, held_out_indices = hold_out(self.num_images, held_out_share, settings.seed)
        self.num_held_out = len(held_out_indices)
        self.mirrors = settings.views == 2 and transforms.second_view is mirror
        self.adapted_images = target.subset(self.adapted_indices)
        num_adapted = len(self.adapted_images)
        self.shard = Shard.of_this_process(num_adapted)
        sample_suffices = methods.method_class(settings.method).trains and self.num_held_out == 0
        order = torch.randperm(num_adapted, generator=torch.Generator().manual_seed(settings.seed))
        self.sampled = order[:SAMPLE] if sample_suffices else order
        batch_size = settings.batch_size
        sample_batch = max(batch_size, USUAL_BATCH)
        parts = {
            "target": (target, batch_size),
            "adapted": (self.adapted_images, batch_size),
            "held_out": (target.subset(held_out_indices), batch_size),
            "sample": (self.adapted_images.subset(self.sampled), sample_batch),
        }
        self.loaders = {
            name: evaluation_loader(UnlabelledImages(images, transforms.evaluation), size, settings.workers)
            for name, (images, size) in parts.items()
        }
        self._outputs: dict[tuple[str, View | None], Outputs] = {}

    def before_training(self, trainer: Trainer) -> None:
        self.predict = trainer.predict

    def forget(self) -> None:
        """The model changes: predictions are made anew."""
        self._outputs = {}

    def target_by_one_view(self) -> Outputs:
        return self._predicted_once("target")

    def target(self) -> Outputs:
        """Predictions on the whole target, by the views of the run."""
        outputs = self.target_by_one_view()
        if not self.mirrors:
            return outputs
        mirrored = self._predicted_once("target", mirror)
        return outputs._replace(logits=mean_prediction(outputs.logits, mirrored.logits))

    def adapted(self) -> Outputs:
        """Predictions on all images to adapt on. Without a hold-out they score an epoch, too."""
        if self.num_held_out:
            return self._predicted_once("adapted")
        return self.target()

    def sample(self) -> Outputs:
        """Predictions on the sample. Their indices are positions among the images to adapt on, as those of a step."""
        outputs = self._predicted_once("sample")
        return outputs._replace(indices=self.sampled[outputs.indices])

    def scored(self) -> Outputs:
        """Predictions that score an epoch, by one view: on the hold-out, or on the sample if nothing is held out."""
        if self.num_held_out:
            return self._predicted_once("held_out")
        if ("target", None) not in self._outputs:
            return self.sample()
        outputs = self.target_by_one_view()
        return Outputs(*(part[self.sampled.to(part.device)] for part in outputs))

    def votes(self, method: Method) -> Tensor | None:
        """f̄ of every image of the target, (N, K); zeros for one that was held out. None for a method without votes."""
        votes = method.votes(torch.tensor(self.shard.padded_positions))
        if votes is None:
            return None
        of_all_images = torch.zeros(self.num_images, *votes.shape[1:])
        of_all_images[self.adapted_indices] = processes.interleave(votes)[: len(self.adapted_indices)].cpu()
        return of_all_images

    def _predicted_once(self, part: str, view: View | None = None) -> Outputs:
        if (part, view) not in self._outputs:
            self._outputs[part, view] = self.predict(self.loaders[part], view)
        return self._outputs[part, view]
