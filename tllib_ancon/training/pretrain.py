"""Train a source model on labelled images: by ERM, or by CDAN or MDD with the target's images."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.loading import (
    ImageLoader,
    UnlabelledImages,
    evaluation_loader,
    hold_out,
    training_loader,
)
from tllib_ancon.data.readers import Loader
from tllib_ancon.measures import selection
from tllib_ancon.models.batch_norm import require_batch_statistics
from tllib_ancon.models.bottleneck import create_pool_layer, shot_classifier
from tllib_ancon.models.calling import called
from tllib_ancon.opening.pretraining import Pretraining, open_pretraining
from tllib_ancon.runs.directory import BEST, LATEST, recorded_settings, refuse_images
from tllib_ancon.runtime import devices, processes
from tllib_ancon.runtime.errors import BadSetting, named
from tllib_ancon.runtime.types import Metrics, Record
from tllib_ancon.self_training.pseudo_label import belief_matching_loss
from tllib_ancon.toolkit.toolkit import AdversarialLoss, GradientReversal, Toolkit, find
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.callbacks.scores import scores_by_labels
from tllib_ancon.training.callbacks.storage import Storage
from tllib_ancon.training.run_record import images_record
from tllib_ancon.training.trainer import Step, Trainer

Batch = tuple[Tensor, Tensor]
"""Positions (B,) among the images of a domain, and their images."""


def pretrain(config: PretrainConfig, *, loader: Loader | None = None) -> Record:
    """Train the source model that the settings describe, or finish the training.

    Args:
        config: with a ``log``, where the model is left
        loader: as for :func:`tllib_ancon.adapt`

    Returns: what ``result.json`` holds; its ``checkpoint`` is the name of the model's file

    Raises:
        UserError: a setting, model or image that cannot be used; a loss that stops being finite
        Interrupted: SIGTERM or SIGINT came; the same call continues
    """
    if config.log is None:
        raise BadSetting("training a source model needs a run directory", f"pass {named('log')}", setting="log")
    toolkit = None
    if config.method != "erm":
        toolkit = find()
        if not config.target:
            raise BadSetting(
                f"{named('method', config.method)} needs the target's unlabelled images",
                f"pass {named('target')}",
                setting="method",
            )
    processes.join()
    with devices.restoring_state(config.threads, config.seed):
        opened = open_pretraining(config, toolkit, loader, recorded_settings(config.log, config.overwrite))
        domains = [images for images in (opened.source, opened.target) if images is not None]
        for images in domains:
            refuse_images(config.log, images)
        record: Record = {"command": "pretrain", **opened.settings.to_dict(), "inputs": images_record(*domains)}
        if toolkit is None:
            trainer = _source_only(opened)
        else:
            record["toolkit"] = toolkit.name
            trainer = _adversarial(opened, toolkit)
        trainer.tell(*opened.notes)
        return trainer.fit(record)


def _source_only(opened: Pretraining) -> Trainer:
    """Minimise the cross-entropy on the source (ERM); ``best.pth`` has the highest accuracy on its hold-out."""
    settings = opened.settings
    source = opened.source
    model = shot_classifier(
        opened.backbone,
        source.num_classes,
        settings.bottleneck_dim,
        not settings.no_pool,
        opened.backbone.pretrained,
        settings.bottleneck_dropout,
    )
    called(model, opened.probe)
    require_batch_statistics(model, settings.batch_size)
    indices, held_out_indices = hold_out(len(source), settings.hold_out, settings.seed)
    labelled = source.subset(indices)
    held_out = source.subset(held_out_indices) if len(held_out_indices) else labelled
    loader = _training_loader(labelled, opened, settings.seed)
    trainer = Trainer(model, [loader], model.get_parameters(settings.lr), settings)
    trainer.objective = _SourceLoss(trainer, settings, labelled)
    trainer.callbacks = [_Scores(held_out, opened), Storage()]
    trainer.result_of = partial(_result_of, settings.method)
    return trainer


def _training_loader(images: ImageSource, opened: Pretraining, seed: int) -> ImageLoader:
    settings = opened.settings
    dataset = UnlabelledImages(images, opened.transforms.train, seed)
    return training_loader(dataset, settings.batch_size, settings.workers, settings.iters_per_epoch)


class _SourceLoss:
    """Cross-entropy, or belief matching, on the source."""

    def __init__(self, trainer: Trainer, settings: PretrainConfig, source: ImageSource):
        self.trainer = trainer
        self.loss = _source_loss(settings)
        self.labels = torch.as_tensor(source.labels)

    def set_mode(self, model: nn.Module) -> None:
        model.train()

    def __call__(self, *batch: Batch) -> Step:
        ((indices, images),) = batch
        logits, _ = self.trainer.outputs(images)
        return self.on_source(logits, indices), logits, {}

    def on_source(self, logits: Tensor, indices: Tensor) -> Tensor:
        return self.loss(logits, self.labels[indices].to(logits.device, non_blocking=True))


def _source_loss(settings: PretrainConfig) -> Callable[[Tensor, Tensor], Tensor]:
    if settings.loss == "belief-matching":
        return partial(belief_matching_loss, coefficient=settings.belief_coefficient)
    return partial(nn.functional.cross_entropy, label_smoothing=settings.label_smoothing or 0.0)


class _Scores(Callback):
    """Score an epoch by the predictions on some images: without labels, and by labels where they have some."""

    def __init__(self, images: ImageSource, opened: Pretraining):
        settings = opened.settings
        self.images = images
        dataset = UnlabelledImages(images.without_labels(), opened.transforms.evaluation)
        self.loader = evaluation_loader(dataset, settings.batch_size, settings.workers)

    def after_epoch(self, trainer: Trainer) -> None:
        predictions = trainer.predict(self.loader)
        scores = selection.score_all(predictions.logits.softmax(1))
        trainer.metrics[-1] |= scores | scores_by_labels(predictions, self.images)


def _result_of(method: str, metrics: Sequence[Metrics]) -> Record:
    """What ``result.json`` holds. TLLib's scripts of CDAN and MDD choose an epoch by labels of the target; here it is
    the last one."""
    chosen: Record = {"criterion": "none: the last epoch", "checkpoint": LATEST, "selected": metrics[-1]}
    if method == "erm":
        best = max(metrics, key=lambda epoch: epoch["accuracy"])
        chosen = {"criterion": "accuracy on held-out source images", "checkpoint": BEST, "selected": best}
    return {"method": method, **chosen, "last": metrics[-1]}


def _adversarial(opened: Pretraining, toolkit: Toolkit) -> Trainer:
    """Minimise the cross-entropy on the source plus ``trade_off`` times an adversarial loss between the domains, by the
    classifier of TLLib's ``cdan.py`` or ``mdd.py``.

    Source: Long et al., "Conditional Adversarial Domain Adaptation", NeurIPS 2018; Zhang et al., "Bridging Theory and
    Algorithm for Domain Adaptation", ICML 2019.
    """
    settings = opened.settings
    model, adversary = _adversarial_network(toolkit, opened.backbone, opened.source.num_classes, settings)
    called(model, opened.probe)
    assert opened.target is not None  # of these methods
    loaders = [
        _training_loader(opened.source, opened, settings.seed),
        _training_loader(opened.target.without_labels(), opened, settings.seed + 1),
    ]
    reversal = GradientReversal(model, adversary)
    trainer = Trainer(
        model,
        loaders,
        [*model.get_parameters(settings.lr), *adversary.get_parameters(settings.lr)],
        settings,
        parts={"loss": adversary, "reversal": reversal},
        steps_of_the_schedule=1,  # the rate of TLLib's scripts decays with the number of the step
    )
    trainer.objective = _AdversarialLoss(trainer, opened, adversary, reversal)
    trainer.callbacks = [_Scores(opened.target, opened), Storage(selects=False)]
    trainer.result_of = partial(_result_of, settings.method)
    return trainer


def _adversarial_network(
    toolkit: Toolkit, backbone: Any, num_classes: int, settings: PretrainConfig
) -> tuple[Any, AdversarialLoss]:
    """A classifier, and the adversarial loss that it is trained against."""
    width = settings.bottleneck_dim
    pool_layer = create_pool_layer(not settings.no_pool)
    model = toolkit.classifier(settings.method, backbone, num_classes, width, pool_layer, backbone.pretrained)
    if settings.method == "mdd":
        return model, toolkit.mdd(settings.margin)
    return model, toolkit.cdan(num_classes, width, settings.randomized, settings.randomized_dim, settings.entropy)


class _AdversarialLoss(_SourceLoss):
    """Cross-entropy on the source and the adversarial loss. Each of many processes computes the loss of all samples."""

    def __init__(self, trainer: Trainer, opened: Pretraining, adversary: AdversarialLoss, reversal: GradientReversal):
        super().__init__(trainer, opened.settings, opened.source)
        self.adversary = adversary.to(trainer.device)
        self.reversal = reversal
        self.trade_off = opened.settings.trade_off
        processes.broadcast(adversary.state_dict().values())
        trainer.optimizer.register_step_pre_hook(self._average_gradients)

    def __call__(self, *batch: Batch) -> Step:
        (indices_s, images_s), (_, images_t) = batch
        logits, features = self.trainer.outputs(torch.cat((images_s, images_t)))
        # Its discriminator's batch statistics and the weights of its samples are those of all processes' images.
        rows = torch.cat((logits, features), 1)
        widths = [logits.shape[1], features.shape[1]]
        of_both_domains: list[Tensor] = []
        for half in rows.chunk(2):
            of_both_domains += torch.split(_gathered(half), widths, 1)
        try:
            transfer_loss: Tensor = self.adversary(*of_both_domains)
        except RuntimeError:  # binary cross-entropy takes finite numbers alone
            if logits.isfinite().all():
                raise
            transfer_loss = torch.full((), torch.nan, device=logits.device)
        self.reversal.step()
        diagnostics = {"transfer_loss": transfer_loss.detach()}
        if self.adversary.domain_accuracy is not None:
            diagnostics["domain_accuracy"] = self.adversary.domain_accuracy
        source_loss = self.on_source(logits[: len(images_s)], indices_s)
        return source_loss + self.trade_off * transfer_loss, logits, diagnostics

    def _average_gradients(self, *_: Any) -> None:
        """Average over processes the gradients of the loss, which lies outside the model."""
        for parameter in self.adversary.parameters():
            if parameter.grad is not None:
                parameter.grad.copy_(processes.mean(parameter.grad))


def _gathered(rows: Tensor) -> Tensor:
    """The rows of all processes, (B, D) -> (W B, D), those of the first process first; differentiable."""
    if processes.world_size() == 1:
        return rows
    rows_before = processes.rank() * len(rows)
    rows_after = (processes.world_size() - 1) * len(rows) - rows_before
    return processes.total(nn.functional.pad(rows, (0, 0, rows_before, rows_after)))
