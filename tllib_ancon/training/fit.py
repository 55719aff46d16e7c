"""The fit of a plan: training, the adapted model as the caller's class, and what a run directory stores of it.

A model whose output is no logits (B, K) adapts by the statistics of batch-norm, or by entropy.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from tllib_ancon.config.settings import defined
from tllib_ancon.data.loading import EpochSampler, ImageLoader, UnlabelledImages
from tllib_ancon.models.batch_norm import estimated_statistics
from tllib_ancon.models.classifier import BATCH_NORMS
from tllib_ancon.models.copies import copy_of, in_the_form_of
from tllib_ancon.models.outputs import output_for
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.errors import NotFinite
from tllib_ancon.training import devices
from tllib_ancon.training.adaptation import Adaptation
from tllib_ancon.training.card import write_card
from tllib_ancon.training.learning import refuse_training_settings
from tllib_ancon.training.loop import training_loader
from tllib_ancon.training.not_finite import explained
from tllib_ancon.training.online import Online, online
from tllib_ancon.training.plan import Plan
from tllib_ancon.training.probing import require_gradient
from tllib_ancon.training.progress import tracker
from tllib_ancon.training.result import AdaptationResult, Origin
from tllib_ancon.training.run import MemoryRun, RunDirectory


def fit(plan: Plan, run: MemoryRun) -> AdaptationResult:
    """Adapt the model of a plan, or resume its run."""
    if plan.model is None:
        return _fit_without_logits(plan)
    adaptation = Adaptation(plan, run)
    config = plan.config
    if not adaptation.method.trains:
        refuse_training_settings(plan.requested)
        config = config.replace(optimizer=None, lr=None)  # the defaults of what it does not read
    elif plan.probe is not None:
        require_gradient(plan.model, plan.probe, config.adapted)
    settings = {"command": "adapt", **config.to_dict(), **plan.record}
    if config.track is not None and processes.is_main():
        plan.progress.tracker = tracker(config.track, Path(str(config.log)), settings)
    try:
        summary = adaptation.fit(settings)
    except NotFinite as error:
        evaluation = plan.transforms.evaluation
        raise explained(error, plan.source_model, plan.target, evaluation, config.batch_size or 1) from None
    adapted = adaptation.adapted_network()
    if isinstance(run, RunDirectory):
        write_card(run, summary)
    module = None if plan.source.checkpoint else plan.source.module
    if module is not None:
        adapted = in_the_form_of(module, adapted)
    return AdaptationResult(
        adapted,
        adaptation.metrics,
        summary["selected_epoch"],
        summary,
        config,
        _recorded=settings,
        _origin=Origin(module, plan.target, plan.transforms.evaluation, plan.head),
    )


def _fit_without_logits(plan: Plan) -> AdaptationResult:
    """Adapt a model by ``adabn`` or, of logits (B, K, H, W), by ``tent``; nothing is scored."""
    config = plan.config
    module: Any = plan.source.module
    assert config.batch_size is not None
    if config.method == "adabn":
        refuse_training_settings(plan.requested)
    stream = _stream_of(plan, module)
    images = UnlabelledImages(plan.target, plan.transforms.train, config.seed)
    loader = training_loader(images, min(config.batch_size, len(plan.target)), config.workers)
    if config.method == "tent":
        _train(stream, loader, plan)
    _estimate_statistics(stream.model, loader)
    adapted = stream.model.eval()
    metrics = [{"epoch": 0}, {"epoch": config.epochs}]
    summary = {
        "method": config.method,
        "criterion": "last",
        "held_out": 0,
        "better_than_start": None,
        "start": metrics[0],
        "selected": metrics[1],
        "last": metrics[1],
    }
    origin = Origin(module, plan.target, plan.transforms.evaluation, plan.head)
    return AdaptationResult(in_the_form_of(module, adapted), metrics, 1, summary, config, _recorded={}, _origin=origin)


def _stream_of(plan: Plan, module: nn.Module) -> Online:
    requested = plan.requested
    settings = defined({"optimizer": requested.optimizer, "lr": requested.lr})
    network = copy_of(module).float()
    return online(network, plan.config.method, batch_norm="target", **settings).to(devices.device())


def _train(stream: Online, loader: ImageLoader, plan: Plan) -> None:
    assert isinstance(loader.sampler, EpochSampler)
    for _ in range(plan.config.epochs):
        for _, images in loader:
            stream(images if plan.transforms.augment is None else plan.transforms.augment(images))
        loader.sampler.epoch += 1


def _estimate_statistics(model: nn.Module, loader: ImageLoader) -> None:
    if not any(isinstance(layer, BATCH_NORMS) for layer in model.modules()):
        return
    with estimated_statistics(model), torch.no_grad():
        for _, images in loader:
            output_for(model, images)
