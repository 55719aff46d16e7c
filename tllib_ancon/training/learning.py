"""The parameters that learn in an adaptation."""

from torch import Tensor, nn

from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.models.batch_norm import require_batch_statistics
from tllib_ancon.models.calling import as_inputs_of, evaluating
from tllib_ancon.models.classifier import BATCH_NORMS, Classifier, ParameterGroups, trainable
from tllib_ancon.models.copies import recording_gradients
from tllib_ancon.opening.open import Opened
from tllib_ancon.runtime.errors import BadModel, named

NORMS = (BATCH_NORMS, nn.GroupNorm, nn.LayerNorm)


def parameter_groups(opened: Opened[AdaptConfig]) -> ParameterGroups:
    """The parameters that learn, with their rates; an empty group where only statistics change.

    Raises:
        UserError: no parameter that learns, or that reaches the loss; batches too small for batch-norm
    """
    settings = opened.settings
    model = opened.classifier
    require_batch_statistics(model, settings.batch_size)
    if not methods.method_class(settings.method).trains:
        return [{"params": []}]
    choose_adapted_parameters(model, settings.adapted)
    if opened.source.is_whole:
        _require_gradient(model, opened.probe)
    return model.get_parameters(settings.lr)


def choose_adapted_parameters(model: Classifier, which: str) -> None:
    """Choose the parameters to train. ``all-but-head`` is SHOT's and AnCon's choice, ``norm-affine`` scale and shift of
    the normalisation layers (Rusak et al., 2022)."""
    if which != "as-given":
        model.requires_grad_(which != "norm-affine")
    if which == "all-but-head" and model.head is not None:
        model.head.requires_grad_(False)
    elif which == "norm-affine":
        for norm in filter(lambda module: isinstance(module, NORMS), model.modules()):
            norm.requires_grad_(True)
    if not trainable(model):
        raise BadModel(
            f"no parameter of the model learns with {named('adapted', which)}",
            f"pass a network with weights and {named('adapted', 'all')}; load adapters of PEFT with is_trainable=True",
        )


def _require_gradient(model: Classifier, images: Tensor) -> None:
    """Raise an error if no parameter that learns has a gradient: a forward that computes it under ``no_grad``."""
    try:
        with evaluating(model), recording_gradients():
            logits, _ = model.predict(as_inputs_of(model, images))
    except RuntimeError as error:  # of tensors that inference_mode made
        raise without_gradient() from error
    if not logits.requires_grad:
        raise without_gradient()


def without_gradient() -> BadModel:
    """The error for a model without a gradient of any parameter that learns."""
    return BadModel(
        "no parameter that learns reaches the loss: the model's forward computes it under torch.no_grad(), "
        "torch.inference_mode() or an operation without a gradient, such as argmax",
        f"remove that context or operation from the forward, or in adapt pass {named('adapted', 'all')}, which also "
        "trains the parameters outside it",
    )
