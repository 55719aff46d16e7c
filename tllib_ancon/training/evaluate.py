"""The accuracy and the label-free scores of a model on the images of a domain."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.tensors import ARRAYS
from tllib_ancon.measures import evaluation, selection
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.training import devices, inputs
from tllib_ancon.training.class_names import in_the_models_order, note_on_labels
from tllib_ancon.training.not_finite import predicted_classes, require_predictions
from tllib_ancon.training.predictor import Predictor
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.run import SOURCE, RunDirectory


def evaluate(config: PredictConfig, also: str | None = None) -> tuple[dict[str, Any], Sequence[str]]:
    """Scores of a model and the names of the classes; ``also`` is for :func:`source_accuracy`."""
    with devices.using_processor(config.threads):
        predictor = Predictor(config)
        images = predictor.open(labels=True)
        show = Progress(config.quiet).line
        num_classes = predictor.network.num_classes
        images = in_the_models_order(images, predictor.network, num_classes, predictor.start, show)
        note_on_labels(images, Progress(config.quiet))
        outputs = predictor.logits(images)
        require_predictions(predicted_classes(outputs), images)
        logits = torch.from_numpy(outputs)
        scores: dict[str, Any] = {"images": len(images), **selection.score_all(logits.softmax(1))}
        if images.labels is not None:
            scores |= evaluation.summarize(logits, torch.from_numpy(images.labels), images.num_classes)
        if also is not None:
            scores["source_accuracy"] = source_accuracy(predictor, also)
        return scores, images.classes


def source_accuracy(predictor: Predictor, source: str | Domain) -> dict[str, float]:
    """Accuracy in % on labelled images of the source ``after`` adaptation and, of the run's source model, ``before``. A
    text is a folder of class folders, a file of arrays, or with ``data`` in the settings a domain of that dataset."""
    config = predictor.config
    if isinstance(source, str):
        is_root = config.data in (None, ARRAYS)
        own = config.replace(root=source) if is_root else config
        source = inputs.open_images(own, () if is_root else (source,), "test", predictor.start.classes)
    num_classes = getattr(predictor.network, "num_classes", None) or len(predictor.start.classes or ())
    show = Progress(config.quiet).line
    source = in_the_models_order(source, predictor.network, num_classes, predictor.start, show)
    if source.labels is None:
        raise UserError(f"the source {source.name} has no labels, and its accuracy needs them; pass labelled images")
    note_on_labels(source, Progress(config.quiet))
    predictors, start = {"after": predictor}, predictor.start
    if start.run is not None:
        kept = RunDirectory(start.run).checkpoints / SOURCE
        first = str(kept) if kept.is_file() else start.recorded.get("checkpoint")
        if first is not None:
            predictors = {"before": Predictor(predictor.chosen, start=replace(start, checkpoint=first)), **predictors}
    accuracy = {}
    for name, each in predictors.items():
        right = predicted_classes(each.logits(source)) == source.labels
        accuracy[name] = 100 * float(right.mean())
    return accuracy


def source_line(accuracy: Mapping[str, float]) -> str:
    before = f"{accuracy['before']:.2f} % before adaptation, " if "before" in accuracy else ""
    return f"accuracy on the source: {before}{accuracy['after']:.2f} %{' after' if before else ''}"
