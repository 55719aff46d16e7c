"""The fit of a plan: training, the adapted model as the caller's class, and what a run directory stores of it."""

from collections.abc import Sequence

import torch
from torch import nn

from tllib_ancon.models.classifier import Classifier
from tllib_ancon.models.copies import in_the_form_of, without_graphs
from tllib_ancon.runs.directory import MemoryRun
from tllib_ancon.runtime.errors import NotFinite
from tllib_ancon.training.adaptation import compose
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.learning import refuse_training_settings
from tllib_ancon.training.not_finite import explained
from tllib_ancon.training.plan import Plan
from tllib_ancon.training.probing import require_gradient
from tllib_ancon.training.result import AdaptationResult, Origin


def fit(plan: Plan, run: MemoryRun, callbacks: Sequence[Callback] = ()) -> AdaptationResult:
    """Adapt the model of a plan, or resume its run."""
    adaptation = compose(plan, run, callbacks)
    config = plan.config
    if not adaptation.method.trains:
        refuse_training_settings(plan.requested)
        config = config.replace(optimizer=None, lr=None)  # the defaults of what it does not read
    elif plan.probe is not None:
        require_gradient(plan.model, plan.probe, config.adapted)
    settings = {"command": "adapt", **config.to_dict(), **plan.record}
    try:
        summary = adaptation.fit(settings)
    except NotFinite as error:
        evaluation = plan.transforms.evaluation
        raise explained(error, plan.source_model, plan.target, evaluation, config.batch_size) from None
    module = plan.source.callers_module
    adapted = _released(adaptation.trainer.network, run, module)
    return AdaptationResult(
        adapted,
        adaptation.trainer.metrics,
        summary["selected_epoch"],
        summary,
        config,
        (*plan.notes, *adaptation.trainer.notes),
        _origin=Origin(module, plan.target, plan.transforms.evaluation, plan.source.output),
    )


def _released(classifier: Classifier, run: MemoryRun, callers_module: nn.Module | None) -> nn.Module:
    """The network with the weights of the best epoch, in the form in which the caller passed it."""
    classifier.load_state_dict(run.best())
    _restore_methods(classifier)
    network: nn.Module = classifier.release()
    without_graphs(network)
    # In PyTorch's own layout it computes what it computes when it is loaded again.
    adapted = network.eval().to(memory_format=torch.contiguous_format)
    if callers_module is None:
        return adapted
    return in_the_form_of(callers_module, adapted)


def _restore_methods(model: nn.Module) -> None:
    """Remove what Accelerate and ``compile`` set on an object, so that its methods are those of its class."""
    for name in ("forward", "_original_forward", "_is_accelerate_prepared", "_compiled_call_impl"):
        vars(model).pop(name, None)
