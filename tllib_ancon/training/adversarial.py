"""CDAN and MDD: a source model that has seen the target's unlabelled images, with the toolkit's own losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tllib_ancon import selection
from tllib_ancon.config import PretrainConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import LabelledImages, UnlabelledImages
from tllib_ancon.models.backbones import Backbone
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.self_training import processes
from tllib_ancon.toolkit.adversarial import AdversarialLoss, GradientReversal
from tllib_ancon.toolkit.interface import Toolkit
from tllib_ancon.training.optimization import absolute_decay
from tllib_ancon.training.passes import RECORDED, Record, evaluation_loader, predict_domain
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.run_directory import LATEST, Run
from tllib_ancon.training.source_training import (
    SourceTraining,
    source_cross_entropy,
    training_loader,
)

Value = TypeVar("Value")
REFUSED = "between 0 and 1"
"""What torch's binary cross-entropy says of a probability that is not finite."""

Network = tuple[Any, AdversarialLoss]
"""A classifier of the toolkit and the loss it is trained against."""


def create_cdan(
    toolkit: Toolkit, backbone: Backbone, num_classes: int, options: PretrainConfig, pool_layer: nn.Module | None = None
) -> Network:
    """The classifier of TLLib's ``cdan.py`` and its loss with a domain discriminator.

    Source: Long et al., "Conditional Adversarial Domain Adaptation", NeurIPS 2018.
    """
    width = _of_method(options.bottleneck_dim)
    model = toolkit.image_classifier(backbone.network, num_classes, width, pool_layer, backbone.pretrained)
    randomized = _of_method(options.randomized), _of_method(options.randomized_dim)
    return model, toolkit.cdan(num_classes, width, *randomized, _of_method(options.entropy))


def create_mdd(
    toolkit: Toolkit, backbone: Backbone, num_classes: int, options: PretrainConfig, pool_layer: nn.Module | None = None
) -> Network:
    """The classifier of TLLib's ``mdd.py``, with its adversarial head, and the margin disparity discrepancy.

    Source: Zhang et al., "Bridging Theory and Algorithm for Domain Adaptation", ICML 2019.
    """
    width = _of_method(options.bottleneck_dim)
    model = toolkit.mdd_classifier(backbone.network, num_classes, width, width, pool_layer, backbone.pretrained)
    return model, toolkit.mdd(_of_method(options.margin))


def _of_method(value: Value | None) -> Value:
    """A setting that this method has, which is None with another one."""
    assert value is not None
    return value


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
        length = _of_method(options.iters_per_epoch) * options.batch_size
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
        self.scores = RECORDED if record is not None else ()

    def _schedule(self, optimizer: Optimizer) -> LRScheduler:
        return absolute_decay(optimizer, self.options.lr_gamma, self.options.lr_decay)

    def _loss(
        self, source: tuple[Tensor, Tensor], target: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        (images_s, labels_s), (_, images_t) = source, target
        logits, features = self._outputs(torch.cat((images_s, images_t)))
        transfer_loss = self._transfer_loss(logits, features)
        self.reversal.step()
        diagnostics = {"transfer_loss": transfer_loss.detach()}
        if self.adversary.domain_accuracy is not None:
            diagnostics["domain_accuracy"] = self.adversary.domain_accuracy
        loss = (
            source_cross_entropy(logits[: len(images_s)], labels_s) + _of_method(self.options.trade_off) * transfer_loss
        )
        return loss, logits, diagnostics

    def _transfer_loss(self, logits: Tensor, features: Tensor) -> Tensor:
        """The toolkit's loss of the images of both domains, half and half, in all processes: its discriminator's batch
        statistics and the weights of its samples are those of one large batch. CDAN's refuses what is not finite, with
        an error of its own."""
        rows = torch.cat((logits, features), 1)
        source, target = (
            torch.split(processes.gather_with_gradient(half), [logits.shape[1], features.shape[1]], 1)
            for half in rows.chunk(2)
        )
        try:
            loss: Tensor = self.adversary(*source, *target)
            return loss
        except RuntimeError as error:
            if REFUSED not in str(error):
                raise
            raise FloatingPointError from error

    def _scores(self, epoch: int) -> dict[str, Any]:
        batches, num_images = self.interruption.watch(self.target_loader, epoch), self.target_loader.num_images
        with self.accelerator.autocast():
            predictions = predict_domain(_Logits(self.network), batches, self.device, num_images)
        self._require_finite_scores(predictions.logits, epoch)
        scores: dict[str, Any] = selection.score_all(predictions.logits.softmax(1))
        return scores if self.record is None else {**scores, **self.record(predictions)}

    def _is_best(self) -> bool:
        return False

    def _result(self) -> dict[str, Any]:
        return {
            "method": self.options.method,
            "criterion": "none: the last epoch",
            "checkpoint": LATEST,
            "selected": self.metrics[-1],
            "last": self.metrics[-1],
        }


class _Logits(Classifier):
    """A classifier of the toolkit in evaluation, when it gives logits alone."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def predict(self, images: Tensor) -> tuple[Tensor, Tensor]:
        logits: Tensor = self.network(images)
        return logits, logits.new_empty(len(logits), 0)
