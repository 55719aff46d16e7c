"""The predictions of a model on images, and the network that makes them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.data.batches import with_floats_as
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.loading import ImageLoader, UnlabelledImages
from tllib_ancon.data.readers import Loader
from tllib_ancon.data.transforms import Preprocessing, Transform, mirror
from tllib_ancon.models.calling import called, evaluating
from tllib_ancon.models.classifier import Classifier, LogitsAndFeatures
from tllib_ancon.models.copies import unwrapped
from tllib_ancon.models.head import inspect
from tllib_ancon.models.output import Output
from tllib_ancon.opening.defaults import Facts, resolve
from tllib_ancon.opening.images import find_images, notes_of, prepare, require_loader_of
from tllib_ancon.opening.source import Model, Source, open_source
from tllib_ancon.opening.transforms import TransformRule, preprocessing_by
from tllib_ancon.runtime import devices
from tllib_ancon.runtime.errors import BadSetting, named
from tllib_ancon.runtime.processes import Shard
from tllib_ancon.runtime.text import Shown, counted
from tllib_ancon.self_training.method import mean_prediction
from tllib_ancon.training.first_pass import note_on_one_class
from tllib_ancon.training.inference import run_network
from tllib_ancon.training.not_finite import predicted_classes
from tllib_ancon.training.progress import Progress

AUGMENTING = ("train_resizing", "scale", "ratio", "padding")
"""Settings that predictions do not read. A configuration of images has them for training."""


@dataclass(frozen=True, repr=False)
class Predictions(Shown):
    """Predictions on N images.

    Attributes:
        probabilities: (N, K) float32; each row sums to 1, or is NaN where the model's output is not finite
        indices: (N,) int64, position of each image in the input
        paths: (N,) files of the images; None where they are no files
    """

    probabilities: NDArray[np.float32]
    indices: NDArray[np.int64]
    paths: Sequence[str] | None

    @property
    def labels(self) -> NDArray[np.int64]:
        """(N,) int64, the class of the largest probability; -1 where the probabilities are NaN."""
        return predicted_classes(self.probabilities)

    @property
    def class_prior(self) -> NDArray[np.float32]:
        """(K,) float32, estimated frequency of each class: its fraction of the predicted classes."""
        predicted = self._predicted
        frequencies = np.bincount(predicted, minlength=self.probabilities.shape[1]) / max(len(predicted), 1)
        return np.asarray(frequencies, np.float32)

    @property
    def _predicted(self) -> NDArray[np.int64]:
        """The predicted classes of the images that have one."""
        return self.labels[self.labels >= 0]

    def __repr__(self) -> str:
        count, num_classes = self.probabilities.shape
        predicted = self._predicted
        missing = count - len(predicted)
        parts = [f"{counted(count, 'image')}, {num_classes} classes"]
        if missing:
            parts.append(f"{missing:,} without a class: the model's output is not finite")
        if len(predicted):
            most_frequent = Counter(predicted.tolist()).most_common(5)
            usual = ", ".join(f"{label} ({times:,})" for label, times in most_frequent)
            confidence = self.probabilities[self.labels >= 0].max(1).mean()
            parts += [f"most frequent: {usual}", f"mean confidence {confidence:.2f}"]
        return "; ".join(parts)


def predict(
    model: Model,
    images: Any,
    *,
    output: Output | None = None,
    evaluation_transform: Transform | None = None,
    loader: Loader | None = None,
    **settings: Any,
) -> Predictions:
    """Predict the classes of images.

    Args:
        model: any module from images (B, C, H, W) to logits (B, K), such as the ``model`` of an
            :class:`~tllib_ancon.training.adapt.AdaptationResult`. Device and mode are unchanged. Or a checkpoint or run
            directory; or a module beside ``checkpoint``, whose weights a copy of it then has
        images: as for :func:`tllib_ancon.adapt`
        output: as for :func:`tllib_ancon.adapt`
        evaluation_transform: item -> tensor (C, H, W), or an image processor of transformers; uint8 tensors reach it
            as PIL images. Default: for images from the run directory or the model's timm, transformers, open_clip or
            torchvision metadata; other tensors are unchanged.
        loader: path of a file -> PIL image or uint8 tensor (1 or 3, H, W), transformed as any image, or float tensor,
            which the model gets unchanged. Default: Pillow, as RGB with 8 bits a channel
        **settings: of :class:`~tllib_ancon.config.predict.PredictConfig`, such as ``batch_size=64`` or ``views=2``

    Raises:
        UserError: a setting, model or image that cannot be used (which, why, what to do)
    """
    config = PredictConfig(**settings)
    with devices.restoring_state(config.threads):
        predictor = Predictor(config, model, evaluation_transform, output=output, loader=loader)
        domain = predictor.open(images)
        positions = np.asarray(domain.positions, dtype=np.int64)
        return Predictions(predictor.probabilities(domain), positions, domain.paths)


class Predictor:
    """A network that is ready to predict: the caller's module, which stays unchanged, or that of a checkpoint or run.

    Args:
        config: settings of the user
        model: the caller's module, a checkpoint or a run directory. Default: what the settings name
        transform: the caller's, for evaluation
        output: as for :func:`tllib_ancon.adapt`
        loader: the caller's function that reads image files
        source: the opened model. Default: opened here

    Attributes:
        config: the settings with the defaults that depend on the model
    """

    def __init__(
        self,
        config: PredictConfig,
        model: Model | None = None,
        transform: Transform | None = None,
        *,
        output: Output | None = None,
        source: Source | None = None,
        loader: Loader | None = None,
    ):
        self.requested = config.with_paths(checkpoint=model)
        self.source = source or open_source(self.requested, model, output)
        notes = [*self.source.notes]
        self.network: Any = None if self.source.module is None else unwrapped(self.source.module)
        if self.source.checkpoint:
            self.network = self.source.load(self.requested, notes).to(devices.device())
        Progress(config.quiet).notes(notes)
        self.loader = loader
        self.reader = self.source.reader
        self._is_inspected = False
        self._transform_rule = TransformRule.of_call(None, transform).completed_by(self.network, self.requested)
        self.config = resolve(self.requested, Facts(self.source)).settings

    @property
    def preprocessing(self) -> Preprocessing | None:
        return preprocessing_by(dict(self.config), self._transform_rule.preprocessing)

    def open(self, images: Any = None) -> ImageSource:
        """The images that are passed, or that the settings name, without labels."""
        return self.open_labelled(images, False).without_labels()

    def open_labelled(self, images: Any = None, labels: Any = None) -> ImageSource:
        """The same with these labels, or with the labels of the data."""
        opened = find_images(self.config, images, labels, self.source.classes, self.loader)
        require_loader_of(self.source.recorded_settings, opened)
        Progress(self.config.quiet).notes(notes_of(opened))
        return opened

    def prepare(self, images: ImageSource) -> tuple[ImageSource, Transform]:
        self._transform_rule.refuse_unread_settings(self.requested, images)
        prepared = prepare(self.config, self.source, self.network, images, self._transform_rule)
        progress = Progress(self.config.quiet)
        progress.notes(prepared.notes)
        for name in AUGMENTING:
            if getattr(self.requested, name) not in (None, PredictConfig.model_fields[name].default):
                progress.line(f"{named(name)} has no effect on predictions: it augments training images; leave it out")
        return prepared.domain, prepared.transforms.evaluation

    def logits(self, images: ImageSource, dataset: UnlabelledImages | None = None) -> NDArray[np.float32]:
        """Logits (N, K) in the order of the images, of two views combined; NaN in rows with a negative index."""
        dataset = dataset or UnlabelledImages(*self.prepare(images))
        device = self._weights.device
        order = Shard.of_this_process(len(images)).padded_positions
        loader = ImageLoader(dataset, self.config.batch_size, self.config.workers, order, device=device)
        progress = Progress(self.config.quiet)
        with evaluating(self.network), progress.bar("predicting", len(loader), loader) as bar:
            outputs = run_network(
                self._predict, bar, device, len(order), len(images), result_device=torch.device("cpu")
            )
        unread = (outputs.indices < 0)[:, None]
        logits = np.asarray(outputs.logits.masked_fill(unread, torch.nan))
        note = note_on_one_class(torch.from_numpy(predicted_classes(logits)))
        if note is not None:
            progress.line(str(note))
        return logits

    def probabilities(self, images: ImageSource, dataset: UnlabelledImages | None = None) -> NDArray[np.float32]:
        return np.asarray(torch.from_numpy(self.logits(images, dataset)).softmax(1))

    @property
    def _weights(self) -> Tensor:
        """Weights of the network, in its floating type and on its device."""
        weights: Iterator[Tensor] = (weight for weight in self.network.parameters() if weight.is_floating_point())
        return next(weights, torch.empty(0))

    def _predict(self, items: Tensor) -> LogitsAndFeatures:
        """Logits of a batch, of two views combined, and no features."""
        images = with_floats_as(items, self._weights.dtype)
        logits = self._logits_of(images)
        if self.config.views == 2:
            if images.ndim != 4:
                shape = tuple(images[0].shape)
                raise BadSetting(
                    f"{named('views', '2')} mirrors images, and these inputs have shape {shape}",
                    "leave it out",
                    setting="views",
                )
            logits = mean_prediction(logits, self._logits_of(mirror(images)))
        return logits, logits.new_empty(len(logits), 0)

    def _logits_of(self, images: Any) -> Tensor:
        if images.ndim == 4 and images.device.type == "cpu":  # where convolutions are faster in this layout
            images = images.contiguous(memory_format=torch.channels_last)
        if isinstance(self.network, Classifier):
            logits: Tensor = called(self.network, images)
            return logits
        if self._is_inspected:
            return self.reader(called(self.network, images), len(images))
        self._is_inspected = True
        return inspect(self.network, images, self.reader, num_classes=self.source.num_classes)[0]
