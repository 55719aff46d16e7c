"""An opened model is trained on its images, and comes back as the caller's class."""

from collections.abc import Sequence

import torch
from torch import nn

from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.models.copies import in_the_form_of, without_graphs
from tllib_ancon.opening.open import Opened
from tllib_ancon.runs.directory import RunDirectory
from tllib_ancon.training.adaptation import compose
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.callbacks.teacher import Teacher
from tllib_ancon.training.learning import require_gradient
from tllib_ancon.training.result import AdaptationResult
from tllib_ancon.training.run_record import record_of


def fit(
    opened: Opened[AdaptConfig], teacher: Teacher | None = None, callbacks: Sequence[Callback] = ()
) -> AdaptationResult:
    """Adapt an opened model to its images, or resume its run."""
    config = opened.settings
    model = opened.classifier
    model.preprocessing = opened.transforms.preprocessing
    record = record_of(opened, teacher)
    run = None if config.log is None else RunDirectory(config.log)
    trainer = compose(opened, run, teacher, callbacks)
    if opened.source.is_whole and methods.method_class(config.method).trains:
        require_gradient(model, opened.probe)
    summary = trainer.fit({"command": "adapt", **config.to_dict(), **record})
    trainer.network.load_state_dict(trainer.best_weights if run is None else run.best())
    module = opened.source.callers_module
    return AdaptationResult(
        _released(trainer.network, module),
        trainer.metrics,
        summary["selected_epoch"],
        summary,
        config,
        (*opened.notes, *trainer.notes),
    )


def _released(classifier: Classifier, callers_module: nn.Module | None) -> nn.Module:
    """The network in the form in which the caller passed it."""
    network: nn.Module = classifier.release()
    without_graphs(network)
    # In PyTorch's own layout it computes what it computes when it is loaded again.
    adapted = network.eval().to(memory_format=torch.contiguous_format)
    if callers_module is None:
        return adapted
    return in_the_form_of(callers_module, adapted)
