"""A trained network that is ready to predict: from a run directory, a checkpoint or a module."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.data.batches import Batch, are_images, num_rows, shape_text, tree_map, with_floats_as
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.loading import ImageLoader, UnlabelledImages
from tllib_ancon.data.transforms import Preprocessing, mirror
from tllib_ancon.models.classifier import Classifier, no_logits
from tllib_ancon.models.copies import unwrapped
from tllib_ancon.models.logits import find_logits, observe
from tllib_ancon.models.outputs import LogitsReader, evaluating, output_for
from tllib_ancon.models.preprocessing import is_processor
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.runtime.processes import Shard
from tllib_ancon.self_training.method import mean_prediction
from tllib_ancon.training import devices, inputs
from tllib_ancon.training.facts import facts_of
from tllib_ancon.training.image_transforms import (
    Transform,
    known_preprocessing,
    passed_transforms,
    preprocessing_by,
    refuse_without_effect,
    transforms_of,
    with_preprocessing_of,
)
from tllib_ancon.training.inference import Evaluator
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.resolve import resolve
from tllib_ancon.training.source import Source, open_source


class Predictor:
    """A network in evaluation, the names of its classes, the preprocessing of its images and its number of views. The
    network is a given module, which stays unchanged, or that of a checkpoint or run directory. ``head`` names the head
    of a given module with several."""

    def __init__(
        self,
        config: PredictConfig,
        model: nn.Module | str | Path | None = None,
        transform: Transform | None = None,
        start: Source | None = None,
        head: str | None = None,
    ):
        if isinstance(model, str | Path):
            config, model = config.replace(checkpoint=str(model)), None
        self.start = start or open_source(config, model)
        self.network: Any = None if self.start.module is None else unwrapped(self.start.module)
        if self.start.checkpoint:
            self.network = self.start.load(config).to(devices.device())
        self.head = head
        self._reader: LogitsReader | None = None
        user_transforms = passed_transforms(None if is_processor(transform) else transform, transform)
        self._transforms = with_preprocessing_of(self.network, user_transforms)
        self.chosen = config
        self.config, _ = resolve(config, facts_of(config, self.start))

    @property
    def preprocessing(self) -> Preprocessing | None:
        return preprocessing_by(dict(self.config), known_preprocessing(self._transforms))

    def open(self, images: Any = None) -> Domain:
        """The images that are passed, or that the settings name, without labels."""
        return self.open_labelled(images, False).without_labels()

    def open_labelled(self, images: Any = None, labels: Any = None) -> Domain:
        """The same with these labels, or with the labels of the data."""
        return inputs.images_of(self.config, images, labels, self.start.classes)

    def prepare(self, images: Domain) -> tuple[Domain, Transform]:
        refuse_without_effect(self.chosen, images, self._transforms)
        facts = facts_of(self.config, self.start, self.network, images, self._transforms)
        config, notes = resolve(self.config, facts)
        Progress(self.config.quiet).lines(notes)
        transforms = transforms_of(config, self.network, images, self._transforms)
        return inputs.prepared(config, images, transforms), transforms.evaluation

    def logits(self, images: Domain, dataset: UnlabelledImages | None = None) -> NDArray[np.float32]:
        """Logits (N, K) in the order of the images, of two views combined; NaN in rows with a negative index."""
        dataset = dataset or UnlabelledImages(*self.prepare(images))
        device = self._weights.device
        order = Shard.of_this_process(len(images)).padded_positions
        loader = ImageLoader(dataset, self.config.batch_size, self.config.workers, order, device=device)
        progress = Progress(self.config.quiet)
        with evaluating(self.network), progress.bar("predicting", len(loader)) as bar:
            bar.iterable = loader
            evaluator = Evaluator(self._predict, device, torch.device("cpu"))
            outputs = evaluator.run(bar, len(order), len(images))
        unread = (outputs.indices < 0)[:, None]
        return np.asarray(outputs.logits.masked_fill(unread, torch.nan))

    def probabilities(self, images: Domain, dataset: UnlabelledImages | None = None) -> NDArray[np.float32]:
        return np.asarray(torch.from_numpy(self.logits(images, dataset)).softmax(1))

    @property
    def _weights(self) -> Tensor:
        """Weights of the network, in its floating type and on its device."""
        weights: Iterator[Tensor] = (weight for weight in self.network.parameters() if weight.is_floating_point())
        return next(weights, torch.empty(0))

    def _predict(self, items: Batch) -> tuple[Tensor, Tensor]:
        """Logits of a batch, of two views combined, and no features."""
        images = with_floats_as(items, self._weights.dtype)
        logits = self._logits_of(images)
        if self.config.views == 2:
            if not are_images(images):
                shape = shape_text(tree_map(lambda tensor: tensor[0], images))
                raise UserError(f"`views=2` mirrors images, and these inputs have shape {shape}; leave it out")
            logits = mean_prediction(logits, self._logits_of(mirror(images)))
        return logits, logits.new_empty(len(logits), 0)

    def _logits_of(self, images: Any) -> Tensor:
        if are_images(images) and images.device.type == "cpu":  # where convolutions are faster in this layout
            images = images.contiguous(memory_format=torch.channels_last)
        logits = self._read_logits(images)
        if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != num_rows(images):
            raise UserError(no_logits(logits, num_rows(images)))
        return logits

    def _read_logits(self, images: Batch) -> Any:
        """Logits of a batch. The first one shows where they are in the network's output."""
        if isinstance(self.network, Classifier):
            self._reader = LogitsReader()
        if self._reader is not None:
            return self._reader(output_for(self.network, images))
        names = [] if self.head is None else self.head.split(",")
        observed = observe(self.network, images, names)
        self._reader = find_logits(self.network, images, observed, names)
        for note in self._reader.notes:
            Progress(self.config.quiet).line(note)
        return self._reader(observed.output)
