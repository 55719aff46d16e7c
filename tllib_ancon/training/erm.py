"""The source model: trained on labelled source images alone, chosen on held-out source images."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tllib_ancon.config import PretrainConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import LabelledImages
from tllib_ancon.data.sampling import hold_out
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.self_training.belief_matching import belief_matching_loss
from tllib_ancon.training.optimization import relative_decay, require_batch_statistics
from tllib_ancon.training.passes import evaluation_loader, predict_domain
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.run_directory import BEST, Run
from tllib_ancon.training.source_training import (
    SourceTraining,
    source_cross_entropy,
    training_loader,
)


def source_loss(config: PretrainConfig) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss of labelled source images that a configuration asks for: ``(logits, labels) -> scalar``."""
    if config.loss == "belief-matching":
        assert config.belief_coefficient is not None
        return partial(belief_matching_loss, coefficient=config.belief_coefficient)
    return partial(source_cross_entropy, label_smoothing=config.label_smoothing or 0.0)


class SourceOnly(SourceTraining):
    """Minimise the cross-entropy on the source (ERM); ``best.pth`` has the highest accuracy on its hold-out.

    Raises:
        UserError: a source without labels or smaller than one batch; a loss that is not finite
    """

    scores = ("accuracy",)

    def __init__(
        self,
        model: Classifier,
        source: Domain,
        options: PretrainConfig,
        run: Run,
        train_transform: Callable[[Any], Any],
        evaluation_transform: Callable[[Any], Any],
        progress: Progress,
    ):
        source.require_labels()
        require_batch_statistics(model, options.batch_size)
        kept, held = hold_out(len(source), options.hold_out, options.seed)
        train, held_out = source.subset(kept), source.subset(held if len(held) else kept)
        length = None if options.iters_per_epoch is None else options.iters_per_epoch * options.batch_size
        loader = training_loader(LabelledImages(train, train_transform, options.seed), options, length)
        super().__init__(model, [loader], options, run, progress)
        self.source_loss = source_loss(options)
        self.held_out_loader = evaluation_loader(held_out, evaluation_transform, options.batch_size, loader.pool)
        self.held_out_labels = torch.from_numpy(held_out.require_labels().labels)

    def _schedule(self, optimizer: Optimizer) -> LRScheduler:
        options = self.options
        return relative_decay(optimizer, options.lr_gamma, options.lr_decay, options.epochs * self.steps)

    def _loss(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        images, labels = batch
        logits, _ = self._outputs(images)
        return self.source_loss(logits, labels.to(logits.device, non_blocking=True)), logits, {}

    def _scores(self, epoch: int) -> dict[str, Any]:
        batches, num_images = self.interruption.watch(self.held_out_loader, epoch), self.held_out_loader.num_images
        with self.accelerator.autocast():
            logits = predict_domain(self.network, batches, self.device, num_images).logits
        self._require_finite_scores(logits, epoch)
        predictions = logits.argmax(1).cpu()
        return {"accuracy": 100 * float((predictions == self.held_out_labels).float().mean())}

    def _is_best(self) -> bool:
        *earlier, last = (line["accuracy"] for line in self.metrics)
        return bool(last > max(earlier, default=-1.0))

    def _result(self) -> dict[str, Any]:
        return {
            "method": "erm",
            "criterion": "accuracy on held-out source images",
            "checkpoint": BEST,
            "selected": max(self.metrics, key=lambda line: line["accuracy"]),
            "last": self.metrics[-1],
        }
