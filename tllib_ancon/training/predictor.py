"""A trained network that is ready to predict: from a run directory, a checkpoint or a module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tllib_ancon import processes
from tllib_ancon.config import PredictConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.loading import ImageLoader, UnlabelledImages
from tllib_ancon.data.transforms import Preprocessing, mirror
from tllib_ancon.errors import UserError
from tllib_ancon.models.classifier import evaluating, logits_of
from tllib_ancon.models.foundation import is_processor, preprocessing_of_processor
from tllib_ancon.processes import Shard
from tllib_ancon.self_training.method import mean_prediction
from tllib_ancon.training import devices, inputs
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.resolve import (
    Given,
    Transform,
    Transforms,
    known_preprocessing,
    preprocessing_by,
    resolve,
)
from tllib_ancon.training.trained import TrainedModel, find


class Predictor:
    """A network in evaluation, the names of its classes, the preprocessing of its images and its number of views.

    Args:
        config: settings of the prediction. ``checkpoint`` or ``arch`` names the network if no module is given
        model: a module, which stays unchanged where it is; with ``config.checkpoint`` a copy gets its weights. Or a
            checkpoint or run directory
        transform: item -> tensor (C, H, W), or an image processor of transformers. Default: that of the network
        start: trained model that is found already. Default: found by ``config``
    """

    def __init__(
        self,
        config: PredictConfig,
        model: nn.Module | str | Path | None = None,
        transform: Transform | None = None,
        start: TrainedModel | None = None,
    ):
        if isinstance(model, str | Path):
            config, model = config.replace(checkpoint=str(model)), None
        self.config, self.start = config, start or find(config, model)
        self.network: Any = self.start.given
        if self.start.checkpoint:
            self.network = self.start.load(config).to(devices.device())
        self._given: Given = None
        if is_processor(transform):
            self._given = preprocessing_of_processor(transform)
        elif transform is not None:
            self._given = Transforms(transform, transform)
        self.views = int(resolve(config, self.start).views)

    @property
    def classes(self) -> list[str] | None:
        """Names of the classes, where they are known."""
        return self.start.classes

    @property
    def preprocessing(self) -> Preprocessing | None:
        """How images of files become tensors, where that is known."""
        return preprocessing_by(dict(resolve(self.config, self.start)), known_preprocessing(self.network, self._given))

    def open(self, images: Any = None, labels: bool = False) -> Domain:
        """Open the images, by default of the settings, with the names of the classes."""
        opened = inputs.images_of(self.config, images, None if labels else False, self.classes)
        return opened if labels else opened.without_labels()

    def prepare(self, images: Domain) -> tuple[Domain, Transform]:
        """The images, cached where the settings ask for it, and their transform."""
        config = resolve(self.config, self.start, self.network, images, self._given)
        transforms = inputs.transforms_of(config, known_preprocessing(self.network, self._given), images, self._given)
        return inputs.cached(config, transforms, images), transforms.evaluation

    def logits(self, images: Domain, dataset: UnlabelledImages | None = None) -> NDArray[np.float32]:
        """Logits (N, K) of all images, in their order; of two views, the logarithm of their mean softmax. Many
        processes divide the images, and each gets all rows. Rows of images with a negative index are NaN."""
        dataset = dataset or UnlabelledImages(*self.prepare(images))
        order = Shard.of_this_process(len(images)).padded_positions
        loader = ImageLoader(dataset, self.config.batch_size, self.config.workers, order)
        rows, done = torch.empty(0), 0
        bar_of = Progress(self.config.quiet).bar("predicting", len(loader))
        with inputs.unpacking(self.network, images), bar_of as bar:
            for indices, logits in self._batches(loader):
                if not done:  # one tensor for all rows: small ones between the network's large ones keep their memory
                    rows = torch.empty(len(order), logits.shape[1])
                rows[done : done + len(logits)] = logits.masked_fill((indices < 0)[:, None], torch.nan)
                done += len(logits)
                bar.update()
        gathered: NDArray[np.float32] = processes.interleave(rows)[: len(images)].numpy()
        return gathered

    @torch.inference_mode()
    def _batches(self, loader: ImageLoader) -> Iterator[tuple[Tensor, Tensor]]:
        weights = next((one for one in self.network.parameters() if one.is_floating_point()), torch.empty(0))
        with evaluating(self.network):
            for indices, images in loader:
                images = images.to(weights if images.is_floating_point() else weights.device, non_blocking=True)
                logits = self._logits_of(images)
                if self.views == 2:
                    if images.ndim != 4:
                        shape = tuple(images.shape[1:])
                        raise UserError(f"`views=2` mirrors images, and these inputs have shape {shape}; leave it out")
                    logits = mean_prediction(logits, self._logits_of(mirror(images)))
                yield indices, logits.float().cpu()

    def _logits_of(self, images: Tensor) -> Tensor:
        if images.ndim == 4 and images.device.type == "cpu":  # where convolutions are faster in this layout
            images = images.contiguous(memory_format=torch.channels_last)
        logits = logits_of(self.network, images)
        if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(images):
            raise UserError("the model must return one row of logits for each image, (B, K)")
        return logits


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Probabilities (N, K) in the memory of the logits."""
    probabilities: NDArray[np.float32] = torch.from_numpy(logits).softmax(1).numpy()
    return probabilities


def names_or_numbers(classes: Sequence[str] | None, num_classes: int) -> list[str]:
    return list(classes or map(str, range(num_classes)))
