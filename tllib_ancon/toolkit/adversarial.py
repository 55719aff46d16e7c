"""CDAN's and MDD's losses with one sign, one call and a state that can be resumed, from either toolkit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.errors import UserError


class AdversarialLoss(nn.Module):
    """A toolkit's adversarial loss, to be added to the source domain's cross-entropy and minimised.

    Args:
        loss (nn.Module): the toolkit's loss
        sign (float): -1 if the toolkit's loss is to be maximised. Default: 1

    Inputs:
        - logits_s, logits_t: of the source and the target images
        - features_s, features_t: the classifier's second output, for CDAN the features, for MDD the
          adversarial logits

    Outputs: the loss, a scalar; computed in float32 also under autocast

    Shape: logits (B, K); features (B, D) for CDAN and (B, K) for MDD
    """

    def __init__(self, loss: nn.Module, sign: float = 1.0):
        super().__init__()
        self.loss = loss
        self.sign = sign

    def forward(self, logits_s: Tensor, features_s: Tensor, logits_t: Tensor, features_t: Tensor) -> Tensor:
        with torch.autocast(logits_s.device.type, enabled=False):
            outputs = (logits_s, features_s, logits_t, features_t)
            loss: Tensor = self.sign * self.loss(*(output.float() for output in outputs))
            return loss

    def get_parameters(self, base_lr: float = 1.0) -> list[dict[str, Any]]:
        """The discriminator's parameters as TLLib's groups; none for MDD."""
        parameters = list(self.loss.parameters())
        return [{"params": parameters, "lr": base_lr}] if parameters else []

    @property
    def domain_accuracy(self) -> Tensor | None:
        """How many percent of the last batch the discriminator got right, if there is one."""
        return getattr(self.loss, "domain_discriminator_accuracy", None)


class GradientReversal:
    """The warm-up of a gradient reversal layer, which TLLib leaves out of its state dicts.

    The layer's coefficient grows with the number of iterations; a run that resumes without this number starts
    its warm-up again.

    Args:
        modules (nn.Module): hold the layer between them: CDAN's is in the loss, MDD's in the classifier

    Raises:
        UserError: none of the modules has such a layer, or several have
    """

    def __init__(self, *modules: nn.Module):
        layers = [layer for module in modules for layer in module.modules() if hasattr(layer, "iter_num")]
        if len(layers) != 1:
            raise UserError(f"expected one gradient reversal layer in these modules, found {len(layers)}")
        self._layer: Any = layers[0]

    @property
    def iterations(self) -> int:
        return int(self._layer.iter_num)

    def step(self) -> None:
        """Count one training iteration; CDAN's layer counts its forward passes by itself."""
        if not self._layer.auto_step:
            self._layer.step()

    def state_dict(self) -> dict[str, int]:
        return {"iterations": self.iterations}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._layer.iter_num = int(state["iterations"])


def keep_random_map(multilinear_map: nn.Module) -> None:
    """Make the random matrices of CDAN's randomised map part of its state: a resumed run needs them."""
    for name in ("Rf", "Rg"):
        matrix = getattr(multilinear_map, name)
        delattr(multilinear_map, name)
        multilinear_map.register_buffer(name, matrix)


def check_sizes(**sizes: float) -> None:
    """Raise :class:`UserError` for a size that is not positive."""
    for name, size in sizes.items():
        if not size > 0:
            raise UserError(f"{name} must be positive, got {size}")
