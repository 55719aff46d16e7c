"""CDAN and MDD: a source model that has seen the target's unlabelled images, with the toolkit's own losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tllib_ancon import selection
from tllib_ancon.config import PretrainConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import LabelledImages, UnlabelledImages
from tllib_ancon.models.backbones import Backbone
from tllib_ancon.toolkit.adversarial import AdversarialLoss, GradientReversal
from tllib_ancon.toolkit.interface import Toolkit
from tllib_ancon.training.optimization import absolute_decay
from tllib_ancon.training.passes import Predictions, Record, evaluation_loader
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.run_directory import LATEST, Run
from tllib_ancon.training.source_training import (
    SourceTraining,
    cross_entropy,
    training_loader,
)

Network = tuple[Any, AdversarialLoss]
"""A classifier of the toolkit and the loss it is trained against."""


def create_cdan(
    toolkit: Toolkit, backbone: Backbone, num_classes: int, options: PretrainConfig, pool_layer: nn.Module | None = None
) -> Network:
    """The classifier of TLLib's ``cdan.py`` and its loss with a domain discriminator.

    Source: Long et al., "Conditional Adversarial Domain Adaptation", NeurIPS 2018.
    """
    model = toolkit.image_classifier(
        backbone.network, num_classes, options.bottleneck_dim, pool_layer, backbone.pretrained
    )
    return model, toolkit.cdan(
        num_classes, options.bottleneck_dim, options.randomized, options.randomized_dim, options.entropy
    )


def create_mdd(
    toolkit: Toolkit, backbone: Backbone, num_classes: int, options: PretrainConfig, pool_layer: nn.Module | None = None
) -> Network:
    """The classifier of TLLib's ``mdd.py``, with its adversarial head, and the margin disparity discrepancy.

    Source: Zhang et al., "Bridging Theory and Algorithm for Domain Adaptation", ICML 2019.
    """
    width = options.bottleneck_dim
    model = toolkit.mdd_classifier(backbone.network, num_classes, width, width, pool_layer, backbone.pretrained)
    return model, toolkit.mdd(options.margin)


class AdversarialTraining(SourceTraining):
    """Minimise the cross-entropy on the source plus ``trade_off`` times an adversarial loss between the domains.

    Nothing is selected: ``latest.pth`` is the model, with the toolkit's key names. Labels of the target are removed
    here; ``record`` may score the predictions for the record.

    Args:
        network: of :func:`create_cdan` or :func:`create_mdd`
        source: labelled images
        target: images
        options: how to train
        run: where metrics and checkpoints go; already begun when called
        train_transform, evaluation_transform: PIL image -> tensor
        record: scores the predictions on the whole target, where labels exist
        progress: what the person sees

    Raises:
        UserError: a source without labels; a domain smaller than one batch; a loss that is not finite
    """

    def __init__(
        self,
        network: Network,
        source: Domain,
        target: Domain,
        options: PretrainConfig,
        run: Run,
        train_transform: Callable[[Any], Any],
        evaluation_transform: Callable[[Any], Any],
        record: Record | None,
        progress: Progress,
    ):
        model, loss = network
        source, target = source.require_labels(), target.without_labels()
        length = options.iters_per_epoch * options.batch_size
        images = (
            LabelledImages(source, train_transform, options.seed),
            UnlabelledImages(target, train_transform, options.seed + 1),
        )
        loaders = [training_loader(domain, options, length) for domain in images]
        self.reversal = GradientReversal(model, loss)
        super().__init__(model, loaders, options, run, progress, loss, {"reversal": self.reversal})
        self.adversary = loss
        self.target_loader = evaluation_loader(target, evaluation_transform, options.batch_size, loaders[1].pool)
        self.record = record

    def _schedule(self, optimizer: Optimizer) -> LRScheduler:
        return absolute_decay(optimizer, self.options.lr_gamma, self.options.lr_decay)

    def _loss(
        self, source: tuple[Tensor, Tensor], target: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        (images_s, labels_s), (_, images_t) = source, target
        logits, features = self._outputs(torch.cat((images_s, images_t)))
        logits_s, logits_t = logits.chunk(2)
        features_s, features_t = features.chunk(2)
        transfer_loss = self._transfer_loss(logits_s, features_s, logits_t, features_t)
        self.reversal.step()
        diagnostics = {"transfer_loss": transfer_loss.detach()}
        if self.adversary.domain_accuracy is not None:
            diagnostics["domain_accuracy"] = self.adversary.domain_accuracy
        loss = cross_entropy(logits_s, labels_s) + self.options.trade_off * transfer_loss
        return loss, logits, diagnostics

    def _transfer_loss(self, *outputs: Tensor) -> Tensor:
        """CDAN's refuses what is not finite, with an error of its own."""
        try:
            return self.adversary(*outputs)
        except RuntimeError as error:
            if all(output.isfinite().all() for output in (*outputs, *self.adversary.parameters())):
                raise
            raise FloatingPointError from error

    def _scores(self, epoch: int) -> dict[str, Any]:
        predictions = self._predict_target(epoch)
        self._require_finite_scores(predictions.logits, epoch)
        scores: dict[str, Any] = selection.score_all(predictions.logits.softmax(1))
        return scores if self.record is None else {**scores, **self.record(predictions)}

    def _is_best(self) -> bool:
        return False

    @torch.inference_mode()
    def _predict_target(self, epoch: int) -> Predictions:
        self.model.eval()
        batches = self.interruption.watch(self.target_loader, epoch)
        outputs = [(indices, self.model(images.to(self.device)).float()) for indices, images in batches]
        indices, logits = (torch.cat(parts) for parts in zip(*outputs, strict=True))
        return Predictions(indices, logits.new_empty(len(logits), 0), logits)

    def _result(self) -> dict[str, Any]:
        return {
            "method": self.options.method,
            "criterion": "none: the last epoch",
            "checkpoint": LATEST,
            "selected": self.metrics[-1],
            "last": self.metrics[-1],
        }
