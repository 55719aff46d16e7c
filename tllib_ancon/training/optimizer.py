"""The optimiser of a training, and the schedule of its rate."""

from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.models.classifier import ParameterGroups


def create_optimizer(groups: ParameterGroups, settings: AdaptConfig | PretrainConfig) -> Optimizer:
    """SGD with Nesterov momentum, or AdamW, which applies no weight decay to parameters of one dimension.

    Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
    """
    momentum = settings.momentum
    decay = settings.weight_decay
    if settings.optimizer == "adamw":
        return AdamW(_decayed(groups, decay), lr=0.0, betas=(momentum, 0.999), weight_decay=decay)
    return SGD(groups, lr=0.0, momentum=momentum, nesterov=momentum > 0, weight_decay=decay)


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
