"""The optimiser of a training, and the schedule of its rate."""

from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.models.classifier import ParameterGroups
from tllib_ancon.runtime.types import Options

MANY_WEIGHTS = 10**6
"""From this number of weights on a fused optimiser is faster."""


def create_optimizer(groups: ParameterGroups, settings: AdaptConfig | PretrainConfig, model: nn.Module) -> Optimizer:
    """SGD with Nesterov momentum, or AdamW, which applies no weight decay to parameters of one dimension. A step of a
    large network is one kernel where the device has it.

    Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
    """
    is_fused = sum(parameter.numel() for parameter in model.parameters()) >= MANY_WEIGHTS
    try:
        optimizer = _optimizer(groups, settings, is_fused)
    except RuntimeError:
        if not is_fused:
            raise
        optimizer = _optimizer(groups, settings, is_fused=False)
    # Else the gradient scaler of fp16 leaves a step with infinite gradients to the kernel. The schedule would count
    # this step, and SGD's kernel would leave the momentum of a first step uninitialised.
    optimizer._step_supports_amp_scaling = False  # type: ignore[attr-defined]
    return optimizer


def _optimizer(groups: ParameterGroups, settings: AdaptConfig | PretrainConfig, is_fused: bool) -> Optimizer:
    momentum = settings.momentum
    shared: Options = {"lr": 0.0, "weight_decay": settings.weight_decay, "fused": is_fused or None}
    if settings.optimizer == "adamw":
        return AdamW(_decayed(groups, settings.weight_decay), betas=(momentum, 0.999), **shared)
    return SGD(groups, momentum=momentum, nesterov=momentum > 0, **shared)


def _decayed(groups: ParameterGroups, weight_decay: float) -> ParameterGroups:
    """The groups, each divided into parameters that decay and parameters of one dimension, which do not."""
    divided = []
    for group in groups:
        decaying = [parameter for parameter in group["params"] if parameter.ndim >= 2]
        undecayed = [parameter for parameter in group["params"] if parameter.ndim < 2]
        divided.append({**group, "params": decaying, "weight_decay": weight_decay})
        divided.append({**group, "params": undecayed, "weight_decay": 0.0})
    return divided


def power_decay(optimizer: Optimizer, settings: AdaptConfig | PretrainConfig, total_steps: int) -> LambdaLR:
    """lr · (1 + gamma · step / total_steps)^-decay"""

    def factor(step: int) -> float:
        decayed: float = (1 + settings.lr_gamma * step / total_steps) ** -settings.lr_decay
        return decayed

    return LambdaLR(optimizer, factor)
