"""The source model: trained on labelled source images alone, chosen on held-out source images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import LabelledImages
from tllib_ancon.data.sampling import hold_out
from tllib_ancon.errors import UserError, unknown_name
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.self_training.belief_matching import belief_matching_loss
from tllib_ancon.training.optimization import relative_decay
from tllib_ancon.training.passes import evaluation_loader, predict_domain
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.ranges import require_batch_statistics
from tllib_ancon.training.run_directory import BEST, RunDirectory
from tllib_ancon.training.source_training import (
    SourceTraining,
    SourceTrainingOptions,
    cross_entropy,
    training_loader,
)

LOSSES = ("cross-entropy", "belief-matching")


@dataclass(frozen=True, kw_only=True)
class ErmOptions(SourceTrainingOptions):
    """How to train a source model; the defaults are the paper's for OfficeHome (appendix, "SFDA training
    configurations"). An epoch is a pass over the source, and the learning rate lr · (1 + gamma · step / steps)^-decay.

    Attributes:
        hold_out: fraction of the source that selects the epoch
        loss: ``cross-entropy``, or ``belief-matching``: that of a last-layer Dirichlet
        label_smoothing: of the cross-entropy, in [0, 1)
        belief_coefficient: of belief matching's divergence
    """

    epochs: int = 50
    batch_size: int = 64
    lr: float = 0.01
    weight_decay: float = 1e-3
    lr_gamma: float = 10.0
    bottleneck_dim: int = 256
    hold_out: float = 0.1
    loss: str = "cross-entropy"
    label_smoothing: float = 0.0
    belief_coefficient: float = 0.001

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss not in LOSSES:
            raise unknown_name("loss", self.loss, LOSSES)
        if not 0 <= self.label_smoothing < 1:
            raise UserError(f"--label-smoothing {self.label_smoothing}: expected a value in [0, 1)")
        if self.label_smoothing and self.loss != "cross-entropy":
            raise UserError(f"--label-smoothing belongs to the cross-entropy; leave it out with --loss {self.loss}")

    def source_loss(self) -> Callable[[Tensor, Tensor], Tensor]:
        """``(logits, labels) -> scalar``"""
        if self.loss == "belief-matching":
            return partial(belief_matching_loss, coefficient=self.belief_coefficient)
        return partial(cross_entropy, label_smoothing=self.label_smoothing)


class SourceOnly(SourceTraining):
    """Minimise the cross-entropy on the source (ERM); ``best.pth`` has the highest accuracy on its hold-out.

    Raises:
        UserError: a source without labels or smaller than one batch; a loss that is not finite
    """

    def __init__(
        self,
        model: Classifier,
        source: Domain,
        options: ErmOptions,
        run: RunDirectory,
        train_transform: Callable[[Any], Any],
        evaluation_transform: Callable[[Any], Any],
        progress: Progress,
    ):
        source.require_labels()
        require_batch_statistics(model, options.batch_size)
        kept, held = hold_out(len(source), options.hold_out, options.seed)
        train, held_out = source.subset(kept), source.subset(held if len(held) else kept)
        loader = training_loader(LabelledImages(train, train_transform, options.seed), options)
        super().__init__(model, [loader], options, run, progress)
        self.source_loss = options.source_loss()
        self.held_out_loader = evaluation_loader(held_out, evaluation_transform, options.batch_size, options.workers)
        self.held_out_labels = torch.tensor([sample.label for sample in held_out.samples])

    def _schedule(self, optimizer: Optimizer) -> LRScheduler:
        options = self.options
        return relative_decay(optimizer, options.lr_gamma, options.lr_decay, options.epochs * self.steps)

    def _loss(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        images, labels = batch
        logits, _ = self._outputs(images)
        return self.source_loss(logits, labels.to(logits.device, non_blocking=True)), logits, {}

    def _scores(self, epoch: int) -> dict[str, Any]:
        held_out = self.interruption.watch(self.held_out_loader, epoch)
        with self.accelerator.autocast():
            logits = predict_domain(self.network, held_out, self.device).logits
        self._require_finite_scores(logits, epoch)
        predictions = logits.argmax(1).cpu()
        return {"accuracy": 100 * float((predictions == self.held_out_labels).float().mean())}

    def _is_best(self) -> bool:
        *earlier, last = (line["accuracy"] for line in self.metrics)
        return last > max(earlier, default=-1.0)

    def _result(self) -> dict[str, Any]:
        return {
            "method": "erm",
            "criterion": "accuracy on held-out source images",
            "checkpoint": BEST,
            "selected": max(self.metrics, key=lambda line: line["accuracy"]),
            "last": self.metrics[-1],
        }
