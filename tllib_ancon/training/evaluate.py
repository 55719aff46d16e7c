"""The accuracy and the label-free scores of a model on the images of a domain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tllib_ancon import evaluation, selection
from tllib_ancon.config import PredictConfig
from tllib_ancon.training import devices, inputs
from tllib_ancon.training.predictor import Predictor


def evaluate(config: PredictConfig) -> tuple[dict[str, Any], Sequence[str]]:
    """Score a model: the number of ``images``, the label-free scores, and with labels accuracy and calibration.

    Returns: the scores, and the names of the classes

    Raises:
        UserError: a setting, model or image that cannot be used; a model that was trained on other classes
    """
    with devices.using_processor(config.threads):
        predictor = Predictor(config)
        images = predictor.open(labels=True)
        images = inputs.with_classes(images, predictor.network.num_classes, predictor.start)
        logits = torch.from_numpy(predictor.logits(images))
        scores: dict[str, Any] = {"images": len(images), **selection.score_all(logits.softmax(1))}
        if images.labels is not None:
            scores |= evaluation.summarize(logits, torch.from_numpy(images.labels), images.num_classes)
        return scores, images.classes
