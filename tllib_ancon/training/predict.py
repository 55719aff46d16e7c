"""The predictions of a model on images, and the one pass that makes them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.data.loading import UnlabelledImages, evaluation_loader
from tllib_ancon.data.readers import Loader
from tllib_ancon.data.transforms import Transform, mirror
from tllib_ancon.models.calling import as_inputs_of, called, evaluating
from tllib_ancon.models.output import Output
from tllib_ancon.models.references import Model
from tllib_ancon.opening.open import Opened, open_images, open_model
from tllib_ancon.opening.transforms import preprocessing_of_call
from tllib_ancon.runtime import devices
from tllib_ancon.runtime.errors import BadSetting, named
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.text import Shown, counted
from tllib_ancon.self_training.method import mean_prediction
from tllib_ancon.training.first_pass import note_on_one_class
from tllib_ancon.training.inference import run_network, without_features
from tllib_ancon.training.not_finite import predicted_classes
from tllib_ancon.training.progress import Progress


@dataclass(frozen=True, repr=False)
class Predictions(Shown):
    """Predictions on N images.

    Attributes:
        logits: (N, K) float32, of two views combined; NaN for an image that was not read
        indices: (N,) int64, position of each image in the input
        paths: (N,) files of the images; None where they are no files
        notes: what was decided about the model, the images and the settings, and what the predictions show
    """

    logits: NDArray[np.float32]
    indices: NDArray[np.int64]
    paths: Sequence[str] | None
    notes: Sequence[Note] = ()

    @cached_property
    def probabilities(self) -> NDArray[np.float32]:
        """(N, K) float32; each row sums to 1, or is NaN where the model's output is not finite."""
        return np.asarray(torch.from_numpy(self.logits).softmax(1))

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """(N,) int64, the class of the largest probability; -1 where the probabilities are NaN."""
        return predicted_classes(torch.from_numpy(self.probabilities)).numpy()

    def __repr__(self) -> str:
        count, num_classes = self.logits.shape
        predicted = self.labels[self.labels >= 0].tolist()
        parts = [f"{counted(count, 'image')}, {num_classes} classes"]
        if len(predicted) < count:
            parts.append(f"{count - len(predicted):,} without a class: the model's output is not finite")
        usual = ", ".join(f"{label} ({times:,})" for label, times in Counter(predicted).most_common(5))
        return "; ".join([*parts, f"most frequent: {usual}"])


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
    requested = PredictConfig(**settings).with_paths(checkpoint=model)
    with devices.restoring_state(requested.threads):
        return predict_images(open_to_predict(model, images, requested, False, output, evaluation_transform, loader))


def open_to_predict(
    model: Any,
    images: Any,
    settings: PredictConfig,
    labels: Any,
    output: Output | None,
    evaluation_transform: Transform | None,
    loader: Loader | None,
) -> Opened[PredictConfig]:
    """Open a model and images; the arguments are those of :func:`predict` and :func:`tllib_ancon.evaluate`."""
    opened_model = open_model(model, settings, output=output)
    preprocessing = preprocessing_of_call(None, evaluation_transform)
    return open_images(images, opened_model, settings, labels=labels, preprocessing=preprocessing, loader=loader)


def predict_images(opened: Opened[PredictConfig], dataset: UnlabelledImages | None = None) -> Predictions:
    """Predict opened images by one pass, and show the notes.

    Args:
        opened: the model and the images; the caller's module stays on its device
        dataset: what reads the images; a negative index is of one that it cannot read. Default: each must be readable
    """
    settings = opened.settings
    network = opened.classifier
    progress = Progress(settings.quiet)
    progress.notes(opened.notes)
    _require_views(settings, opened.probe)
    if opened.source.callers_module is None:
        network.to(devices.device())

    def logits_of(items: Tensor) -> Tensor:
        batch = as_inputs_of(network, items)
        if batch.ndim == 4 and batch.device.type == "cpu":  # where convolutions are faster in this layout
            batch = batch.contiguous(memory_format=torch.channels_last)
        logits: Tensor = called(network, batch)
        if settings.views == 2:
            logits = mean_prediction(logits, called(network, mirror(batch)))
        return logits

    images = dataset or UnlabelledImages(opened.images, opened.transforms.evaluation)
    device = next(network.parameters(), torch.empty(0)).device
    loader = evaluation_loader(images, settings.batch_size, settings.workers, device)
    with evaluating(network), progress.bar("predicting", len(loader), loader) as bar:
        outputs = run_network(partial(without_features, logits_of), loader, bar)
    logits = outputs.logits.cpu().masked_fill((outputs.indices < 0)[:, None], torch.nan).numpy()
    labels = predicted_classes(torch.from_numpy(logits).softmax(1))
    one_class = note_on_one_class(labels, opened.classes.distinct_names)
    progress.notes(one_class)
    opened = opened.with_notes(one_class)
    positions = np.asarray(opened.images.positions, dtype=np.int64)
    return Predictions(logits, positions, opened.images.paths, opened.notes)


def _require_views(settings: PredictConfig, probe: Tensor) -> None:
    """Raise an error for two views of inputs that have no mirror."""
    if settings.views == 2 and probe.ndim != 4:
        raise BadSetting(
            f"{named('views', 2)} mirrors images, and these inputs have shape {tuple(probe[0].shape)}",
            "leave it out",
            setting="views",
        )
