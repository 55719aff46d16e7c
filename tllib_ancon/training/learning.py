"""What learns in an adaptation, and settings that have no effect on it."""

from typing import Any

from torch import nn

from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.models.batch_norm import has_statistics
from tllib_ancon.models.classifier import BATCH_NORMS, Classifier, ParameterGroups, trainable
from tllib_ancon.runtime.errors import BadModel, BadSetting, UserError, named
from tllib_ancon.training.progress import Progress

OF_TRAINING = (
    "optimizer",
    "lr",
    "lr_gamma",
    "lr_decay",
    "momentum",
    "weight_decay",
    "step_change",
    "adapted",
    "dropout",
)
"""Settings that a method reads only if it trains."""


def parameter_groups(config: AdaptConfig, model: Classifier, trains: bool, progress: Progress) -> ParameterGroups:
    """The parameters that learn, with their rates; an empty group where only statistics change.

    Raises:
        UserError: settings that change nothing; no parameter that learns
    """
    if not trains and config.batch_norm == "source":
        raise _without_effect(config, "batch_norm")
    if not trains and config.views == 2:
        raise _without_effect(config, "views")
    if (not trains or config.batch_norm == "source") and not has_statistics(model):
        name = "batch_norm" if config.batch_norm == "source" else "method"
        raise BadSetting(
            f"{named(name, f'{getattr(config, name)}')} is about running statistics of batch-norm, and this network "
            f"has no "
            "batch-norm that keeps them",
            "leave it out",
            setting=name,
        )
    if not trains:
        return [{"params": []}]
    learned_before = [parameter.requires_grad for parameter in model.parameters()]
    num_thawed = choose_adapted_parameters(model, config.adapted)
    progress.lines(_notes_on_parameters(model, config.adapted, learned_before, num_thawed))
    return model.get_parameters(config.lr)


def refuse_training_settings(config: AdaptConfig) -> None:
    """Raise an error for a setting of the user's that a method that trains nothing does not read."""
    defaults = {name: AdaptConfig.model_fields[name].default for name in OF_TRAINING}
    defaults |= methods.training_defaults(config.method)
    for name in OF_TRAINING:
        if getattr(config, name) not in (None, defaults[name]):
            raise _without_effect(config, name)


def _without_effect(config: AdaptConfig, name: str) -> UserError:
    return BadSetting(
        f"{named(name, f'{getattr(config, name)}')} has no effect with {named('method', config.method)}, which "
        f"trains nothing",
        "leave it out",
        setting=name,
    )


def _notes_on_parameters(model: Classifier, adapted: Any, learned_before: list[bool], num_thawed: int) -> list[str]:
    """Lines for the user: what was frozen, and whether a head was found."""
    lines = []
    if num_thawed:
        lines.append(
            f"{named('adapted', adapted)} thaws {num_thawed} of {learned_before.count(False)} frozen parameters"
        )
    elif not all(learned_before):
        learning = len(trainable(model))
        lines.append(f"what the model has frozen stays so: {learning} of {len(learned_before)} parameters learn")
    if adapted == "all-but-head" and model.head is None:
        lines.append("the model ends in no Linear layer that could be its head; all of it learns")
    return lines


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
    if not [*model.parameters()]:
        return BadModel("the model has no parameter, so nothing in it can adapt", "pass a network that has weights")
    if any(hasattr(module, "peft_config") for module in model.modules()):
        return BadModel("the adapters of the model are frozen, as PEFT loads them", "load them with is_trainable=True")
    if which == "as-given":
        advice = f"let some require gradients, or pass {named('adapted', 'all-but-head')}"
        return BadModel("all parameters of the model are frozen", advice)
    advice = f"pass {named('adapted', 'all')}"
    return BadModel(f"no parameter of the model learns with {named('adapted', which)}", advice)
