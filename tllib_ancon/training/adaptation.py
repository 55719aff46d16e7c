"""One adaptation: its trainer, its loss and its callbacks. The model comes back as the caller's class."""

from collections.abc import Sequence
from functools import partial

from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.loading import UnlabelledImages, training_loader
from tllib_ancon.models.batch_norm import BatchNormPolicy, layers_with_statistics
from tllib_ancon.models.copies import in_callers_form
from tllib_ancon.opening.open import Opened
from tllib_ancon.runtime.processes import Shard
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.callbacks.guard import CollapseGuard
from tllib_ancon.training.callbacks.scores import Scores
from tllib_ancon.training.callbacks.statistics import PreparedStatistics
from tllib_ancon.training.callbacks.storage import Storage
from tllib_ancon.training.callbacks.teacher import Teacher
from tllib_ancon.training.learning import parameter_groups
from tllib_ancon.training.passes import Passes
from tllib_ancon.training.result import AdaptationResult, result_of
from tllib_ancon.training.run_record import record_of
from tllib_ancon.training.step import AdaptationStep
from tllib_ancon.training.trainer import Trainer


def fit(
    opened: Opened[AdaptConfig], teacher: Teacher | None = None, callbacks: Sequence[Callback] = ()
) -> AdaptationResult:
    """Adapt an opened model to its images, or resume its run."""
    config = opened.settings
    model = opened.classifier
    model.preprocessing = opened.transforms.preprocessing
    record = record_of(opened, teacher)
    trainer = _compose(opened, teacher, callbacks)
    summary = trainer.fit({"command": "adapt", **config.to_dict(), **record})
    trainer.network.load_state_dict(trainer.best_weights if trainer.run is None else trainer.run.best())
    return AdaptationResult(
        in_callers_form(trainer.network.release(), opened.source.callers_module),
        trainer.metrics,
        summary["selected_epoch"],
        summary,
        config,
        tuple(trainer.notes),
    )


def _compose(opened: Opened[AdaptConfig], teacher: Teacher | None, callbacks: Sequence[Callback]) -> Trainer:
    """Compose the adaptation of a model to images, in any number of processes.

    Process r of W visits every W-th adapted image, from the r-th on, in an order of its own, and keeps the votes and
    averages of these alone. Batch statistics such as δ are over the batches of all processes. The memories of NRC and
    AaD hold all images in each process. Predictions on a domain are divided and put together.

    Epoch 0 scores the source model, which is changed in place. Labels of the target are used only for the record of
    every epoch.

    Args:
        opened: both, and the settings
        teacher: another model whose predictions enter the pseudo-labels
        callbacks: of the user; they are called when an epoch is scored, and before it is stored
    """
    settings = opened.settings
    passes = Passes(opened.images.without_labels(), settings, opened.transforms)
    model = opened.classifier
    images = UnlabelledImages(passes.adapted_images, opened.transforms.train, settings.seed)
    training = training_loader(images, settings.batch_size, settings.workers)
    method = methods.create(
        settings.method,
        num_samples=passes.shard.num_samples,
        num_classes=model.num_classes,
        feature_dim=model.features_dim,
        total_steps=settings.epochs * len(training),
        head=model.head,
        shard=passes.shard,
        **settings.options,
    )
    method.teacher = teacher
    groups = parameter_groups(opened)
    policy = BatchNormPolicy(settings.batch_norm, num_images=len(Shard.of_this_process(len(passes.sampled))))
    lag = policy.note_on_lag(model, settings.epochs * len(training))
    trainer = Trainer(model, [training], groups, settings, parts={"method": method})
    trainer.first_epoch = 0
    trainer.tell(*opened.notes)
    if lag is not None and method.trains:
        trainer.tell(lag)
    method.to(trainer.device)
    step = AdaptationStep(method, trainer, opened.transforms, settings, policy)
    trainer.objective = step
    scores = Scores(opened.images, passes, method)
    # Without labels no epoch predicts the whole target.
    predictions = None if opened.images.labels is None else scores.predictions
    storage = Storage(keeps_source=settings.checkpoint is None, predictions=predictions)
    trainer.callbacks = [*_preparing(opened, teacher, step, scores), *callbacks, storage]
    trainer.result_of = partial(result_of, settings, passes.num_held_out)
    return trainer


def _preparing(
    opened: Opened[AdaptConfig], teacher: Teacher | None, step: AdaptationStep, scores: Scores
) -> list[Callback]:
    """What prepares an epoch, scores it, and guards it against a collapse."""
    policy = step.policy
    method = step.method
    passes = scores.passes
    callbacks: list[Callback] = [passes]
    of_target = policy.statistics == "target"
    layers = layers_with_statistics(opened.classifier)
    mixes = layers and policy.statistics not in ("source", "target")
    if mixes or (of_target and not method.trains):
        callbacks.append(PreparedStatistics(policy, passes))
    if teacher is not None:
        teacher.sample_of_model = passes.loaders["sample"]
        callbacks.append(teacher)
    callbacks.append(scores)
    # With the target's statistics their moving average lags behind the weights, and the diversity may fall for this
    # reason alone.
    if method.trains and not (of_target and layers):
        callbacks.append(CollapseGuard(scores))
    return callbacks
