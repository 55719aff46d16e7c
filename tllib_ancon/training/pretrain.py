"""Train a source model on labelled images: by ERM, or by CDAN or MDD with the target's images."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.data.image_source import ImageSource, numbered
from tllib_ancon.data.layouts.hugging_face import require_datasets
from tllib_ancon.data.loading import (
    ImageLoader,
    LabelledImages,
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
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.models.networks import create_backbone, parse_options
from tllib_ancon.models.references import ModelRef
from tllib_ancon.opening.classes import MOST_LISTED, ClassMap
from tllib_ancon.opening.defaults import Facts, resolve
from tllib_ancon.opening.images import PreparedImages, notes_of, open_by_settings, prepare, with_cache
from tllib_ancon.opening.open import probe_of
from tllib_ancon.opening.transforms import UNDECIDED
from tllib_ancon.runs.directory import BEST, LATEST, RunDirectory, recorded_settings, refuse_images
from tllib_ancon.runtime import devices, processes
from tllib_ancon.runtime.errors import BadSetting, UserError, named
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.text import first_few
from tllib_ancon.runtime.types import Metrics, Record
from tllib_ancon.self_training.pseudo_label import belief_matching_loss
from tllib_ancon.toolkit.toolkit import AdversarialLoss, GradientReversal, Toolkit, find
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.callbacks.line import EpochLine
from tllib_ancon.training.callbacks.scores import scores_by_labels
from tllib_ancon.training.callbacks.storage import Storage
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.run_record import images_record
from tllib_ancon.training.trainer import Step, Trainer, Training

_Prepared = PreparedImages[PretrainConfig]


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
        raise UserError("training a source model needs a run directory", f"pass {named('log')}")
    if config.method != "erm" and not config.target:
        raise BadSetting(
            f"{named('method', config.method)} needs the target's unlabelled images",
            f"pass {named('target')}",
            setting="method",
        )
    if not config.source:
        raise BadSetting(f"{named('source')} is needed", "pass the domain to train on", setting="source")
    require_datasets(str(config.data))
    processes.join()
    with devices.restoring_state(config.threads):
        run = RunDirectory(config.log)
        domains = [open_by_settings(config, config.source, loader=loader)]
        toolkit = None
        if config.method != "erm":
            toolkit = find()
            target = open_by_settings(config, config.target, classes=domains[0].classes, loader=loader)
            domains.append(ClassMap(domains[0].num_classes, domains[0].classes).label(target).domain)
        for domain in domains:
            refuse_images(config.log, domain.reader.root, domain.paths or ())
            Progress(config.quiet).notes(notes_of(domain))
        classes = domains[0].classes
        if classes and [*classes] == numbered(len(classes)):
            Progress(config.quiet).line(_number_of_classes(domains[0]))
        record: Record = {"inputs": images_record(*domains)}
        devices.make_reproducible(config.seed)
        network = resolve(config, Facts(ModelRef())).settings
        options = parse_options(network.arch_option)
        backbone = create_backbone(str(network.arch), not config.scratch, config.pretrained_weights, options, toolkit)
        UNDECIDED.refuse_unread_settings(config, domains[0])
        recorded = recorded_settings(config.log, config.overwrite)
        transform_rule = UNDECIDED.completed_by(backbone, config)
        prepared = prepare(config, ModelRef(), backbone, domains[0], transform_rule, recorded)
        Progress(config.quiet).notes(prepared.notes)
        if toolkit is not None:
            record["toolkit"] = toolkit.name
        training = _training(prepared, domains, backbone, toolkit, run)
        return training.fit({"command": "pretrain", **prepared.config.to_dict(), **record})


def _number_of_classes(source: ImageSource) -> str:
    """A line about the number of classes of labels without names, and about labels that no image has. One wrong label
    adds many classes."""
    line = f"{source.num_classes} classes: the largest label is {source.num_classes - 1}"
    labels = {*map(str, source.labels if source.labels is not None else ())}
    missing = [name for name in source.classes if name not in labels]
    if missing:
        line += f", and no image has label {first_few(missing, MOST_LISTED)}; correct the list if a label is wrong"
    return line


def _training(
    prepared: _Prepared, domains: Sequence[ImageSource], backbone: Any, toolkit: Toolkit | None, run: RunDirectory
) -> Training:
    options = prepared.config
    num_classes = prepared.domain.num_classes
    pool = not options.no_pool
    probe = probe_of(UnlabelledImages(prepared.domain, prepared.transforms.evaluation))
    if toolkit is not None:
        model, adversary = _adversarial_network(toolkit, backbone, num_classes, options)
        called(model, probe)
        return _adversarial(model, adversary, prepared, domains[1], run)
    model = shot_classifier(
        backbone, num_classes, options.bottleneck_dim, pool, backbone.pretrained, options.bottleneck_dropout
    )
    called(model, probe)
    return _source_only(model, prepared, run)


def _source_only(model: Classifier, prepared: _Prepared, run: RunDirectory) -> Training:
    """Minimise the cross-entropy on the source (ERM); ``best.pth`` has the highest accuracy on its hold-out."""
    options = prepared.config
    source = prepared.domain
    transforms = prepared.transforms
    require_batch_statistics(model, options.batch_size)
    indices, held_out_indices = hold_out(len(source), options.hold_out, options.seed)
    held_out = source.subset(held_out_indices if len(held_out_indices) else indices)
    images = LabelledImages(source.subset(indices), transforms.train, options.seed)
    loader = training_loader(images, options.batch_size, options.workers, options.iters_per_epoch)
    held_out_loader = evaluation_loader(held_out, transforms.evaluation, options.batch_size, options.workers)
    trainer = Trainer(model, [loader], model.get_parameters(options.lr), options)
    callbacks = [
        _AccuracyOnSource(held_out_loader, torch.as_tensor(held_out.labels)),
        Storage(run, _has_highest_accuracy),
        EpochLine("source epoch"),
    ]
    return Training(trainer, _SourceLoss(trainer, options), callbacks, _result_of_source_only, run)


class _SourceLoss:
    """Cross-entropy, or belief matching, on the source."""

    def __init__(self, trainer: Trainer, options: PretrainConfig):
        self.trainer = trainer
        self.loss = _source_loss(options)

    def set_mode(self, model: nn.Module) -> None:
        model.train()

    def __call__(self, batch: tuple[Tensor, Tensor]) -> Step:
        images, labels = batch
        logits, _ = self.trainer.outputs(images)
        return self.loss(logits, labels.to(logits.device, non_blocking=True)), logits, {}


class _AccuracyOnSource(Callback):
    """Score an epoch by the accuracy on held-out images of the source."""

    def __init__(self, held_out: ImageLoader, labels: Tensor):
        self.held_out = held_out
        self.labels = labels

    def after_epoch(self, trainer: Trainer) -> None:
        logits = trainer.predict(self.held_out).logits
        trainer.require_finite(logits)
        is_right = logits.argmax(1).cpu() == self.labels
        trainer.metrics[-1]["accuracy"] = 100 * float(is_right.float().mean())


def _has_highest_accuracy(metrics: Sequence[Metrics]) -> bool:
    *earlier, last = (epoch["accuracy"] for epoch in metrics)
    return bool(last > max(earlier, default=-1.0))


def _result_of_source_only(metrics: Sequence[Metrics]) -> Record:
    return {
        "method": "erm",
        "criterion": "accuracy on held-out source images",
        "checkpoint": BEST,
        "selected": max(metrics, key=lambda epoch: epoch["accuracy"]),
        "last": metrics[-1],
    }


def _adversarial_network(
    toolkit: Toolkit, backbone: Any, num_classes: int, options: PretrainConfig
) -> tuple[Any, AdversarialLoss]:
    """The classifier of TLLib's ``cdan.py`` or ``mdd.py``, and the adversarial loss that it is trained against.

    Source: Long et al., "Conditional Adversarial Domain Adaptation", NeurIPS 2018; Zhang et al., "Bridging Theory and
    Algorithm for Domain Adaptation", ICML 2019.
    """
    width = options.bottleneck_dim
    pool_layer = create_pool_layer(not options.no_pool)
    model = toolkit.classifier(options.method, backbone, num_classes, width, pool_layer, backbone.pretrained)
    if options.method == "mdd":
        return model, toolkit.mdd(options.margin)
    return model, toolkit.cdan(num_classes, width, options.randomized, options.randomized_dim, options.entropy)


def _adversarial(
    model: Any, adversary: AdversarialLoss, prepared: _Prepared, opened_target: ImageSource, run: RunDirectory
) -> Training:
    """Minimise the cross-entropy on the source plus ``trade_off`` times an adversarial loss between the domains."""
    options = prepared.config
    transforms = prepared.transforms
    notes: list[Note] = []
    target = with_cache(options, opened_target, transforms, notes)
    Progress(options.quiet).notes(notes)
    unlabelled = target.without_labels()
    sizes = (options.batch_size, options.workers, options.iters_per_epoch)
    loaders = [
        training_loader(LabelledImages(prepared.domain, transforms.train, options.seed), *sizes),
        training_loader(UnlabelledImages(unlabelled, transforms.train, options.seed + 1), *sizes),
    ]
    target_loader = evaluation_loader(unlabelled, transforms.evaluation, options.batch_size, options.workers)
    reversal = GradientReversal(model, adversary)
    trainer = Trainer(
        model,
        loaders,
        [*model.get_parameters(options.lr), *adversary.get_parameters(options.lr)],
        options,
        parts={"loss": adversary, "reversal": reversal},
        steps_of_the_schedule=1,  # the rate of TLLib's scripts decays with the number of the step
    )
    objective = _AdversarialLoss(trainer, adversary, reversal, options.trade_off)
    callbacks = [_ScoresOnTarget(target_loader, target), Storage(run, _no_epoch_is_best), EpochLine("source epoch")]
    return Training(trainer, objective, callbacks, partial(_result_of_adversarial, options.method), run)


class _AdversarialLoss:
    """Cross-entropy on the source and the adversarial loss. Each of many processes computes the loss of all samples."""

    def __init__(self, trainer: Trainer, adversary: AdversarialLoss, reversal: GradientReversal, trade_off: float):
        self.trainer = trainer
        self.adversary = adversary.to(trainer.device)
        self.reversal = reversal
        self.trade_off = trade_off
        processes.broadcast(adversary.state_dict().values())
        trainer.optimizer.optimizer.register_step_pre_hook(self._average_gradients)

    def set_mode(self, model: nn.Module) -> None:
        model.train()

    def __call__(self, source: tuple[Tensor, Tensor], target: tuple[Tensor, Tensor]) -> Step:
        images_s, labels_s = source
        _, images_t = target
        logits, features = self.trainer.outputs(torch.cat((images_s, images_t)))
        # Its discriminator's batch statistics and the weights of its samples are those of all processes' images.
        rows = torch.cat((logits, features), 1)
        widths = [logits.shape[1], features.shape[1]]
        of_both_domains: list[Tensor] = []
        for half in rows.chunk(2):
            of_both_domains += torch.split(processes.gather_with_gradient(half), widths, 1)
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
        labels_s = labels_s.to(logits.device, non_blocking=True)
        source_loss = nn.functional.cross_entropy(logits[: len(images_s)].float(), labels_s)
        return source_loss + self.trade_off * transfer_loss, logits, diagnostics

    def _average_gradients(self, *_: Any) -> None:
        """Average over processes the gradients of the loss, which lies outside the model."""
        processes.average(parameter.grad for parameter in self.adversary.parameters() if parameter.grad is not None)


class _ScoresOnTarget(Callback):
    """Score an epoch without labels, and for the record by the target's labels, where it has some."""

    def __init__(self, loader: ImageLoader, target: ImageSource):
        self.loader = loader
        self.target = target

    def after_epoch(self, trainer: Trainer) -> None:
        predictions = trainer.predict(self.loader)
        trainer.require_finite(predictions.logits)
        trainer.metrics[-1] |= selection.score_all(predictions.logits.softmax(1))
        trainer.metrics[-1] |= scores_by_labels(predictions, self.target)


def _no_epoch_is_best(metrics: Sequence[Metrics]) -> bool:
    """TLLib's scripts of CDAN and MDD choose an epoch by labels of the target; here the last one counts."""
    return False


def _result_of_adversarial(method: str, metrics: Sequence[Metrics]) -> Record:
    return {
        "method": method,
        "criterion": "none: the last epoch",
        "checkpoint": LATEST,
        "selected": metrics[-1],
        "last": metrics[-1],
    }


def _source_loss(config: PretrainConfig) -> Callable[[Tensor, Tensor], Tensor]:
    if config.loss == "belief-matching":
        return partial(belief_matching_loss, coefficient=config.belief_coefficient)
    cross_entropy = nn.CrossEntropyLoss(label_smoothing=config.label_smoothing)
    return lambda logits, labels: cross_entropy(logits.float(), labels)
