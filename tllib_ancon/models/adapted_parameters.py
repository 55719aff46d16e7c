"""Which parameters of a classifier learn in an adaptation."""

from torch import nn

from tllib_ancon.models.classifier import BATCH_NORMS, Classifier, trainable
from tllib_ancon.runtime.errors import UserError


def choose_adapted_parameters(model: Classifier, which: str) -> int:
    """Choose the parameters to train; returns how many of them were frozen. ``all-but-head`` is SHOT's and AnCon's
    choice, ``norm-affine`` scale and shift of the normalisation layers (Rusak et al., 2022)."""
    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
    if which != "as-given":
        model.requires_grad_(which != "norm-affine")
    if which == "all-but-head" and model.head is not None:
        model.head.requires_grad_(False)
    elif which == "norm-affine":
        for module in model.modules():
            if isinstance(module, BATCH_NORMS | nn.GroupNorm | nn.LayerNorm):
                module.requires_grad_(True)
    if not trainable(model):
        raise _nothing_to_train(model, which)
    return sum(parameter.requires_grad for parameter in frozen)


def _nothing_to_train(model: nn.Module, which: str) -> UserError:
    """The error for a model without a parameter that learns."""
    if any(hasattr(module, "peft_config") for module in model.modules()):
        advice = "Its adapters are frozen, as PEFT loads them: load them with is_trainable=True"
    elif which == "as-given":
        advice = "All are frozen: let parameters require gradients, or pass `adapted=all-but-head`"
    elif which == "all-but-head":
        advice = "The head has all of its parameters"
    else:
        advice = "The model has none of these parameters"
    return UserError(
        f"the model has no parameter to train with `adapted={which}`; pass another `adapted`, such as all. {advice}"
    )
