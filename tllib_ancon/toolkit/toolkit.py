"""``tllib`` 0.4 and ``dalib`` 0.2, its release of 2020, behind one signature: networks, CDAN and MDD."""

from importlib import import_module
from importlib.util import find_spec
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.runtime.errors import UserError, one_line
from tllib_ancon.toolkit.compat import INSTALL, is_installed

HIDDEN = 1024
"""Width of the hidden layers of CDAN's discriminator."""


class AdversarialLoss(nn.Module):
    """A toolkit's adversarial loss of logits (B, K) and features, of MDD adversarial logits, of source and target
    images; a float32 scalar. ``sign`` is -1 if the toolkit's loss is to be maximised."""

    def __init__(self, loss: nn.Module, sign: float = 1.0):
        super().__init__()
        self.loss = loss
        self.sign = sign

    def forward(self, *outputs: Tensor) -> Tensor:
        with torch.autocast(outputs[0].device.type, enabled=False):
            loss: Tensor = self.sign * self.loss(*(output.float() for output in outputs))
            return loss

    def get_parameters(self, base_lr: float = 1.0) -> list[dict[str, Any]]:
        """The discriminator's parameters as TLLib's groups; none for MDD."""
        parameters = list(self.loss.parameters())
        if not parameters:
            return []
        return [{"params": parameters, "lr": base_lr}]

    @property
    def domain_accuracy(self) -> Tensor | None:
        """How many percent of the last batch the discriminator got right, if there is one."""
        return getattr(self.loss, "domain_discriminator_accuracy", None)


class GradientReversal:
    """The gradient reversal layer's number of iterations, which TLLib's state dicts leave out."""

    def __init__(self, *modules: nn.Module):
        (layer,) = (layer for module in modules for layer in module.modules() if hasattr(layer, "iter_num"))
        self._layer: Any = layer

    def step(self) -> None:
        """Count one training iteration; CDAN's layer counts its forward passes by itself."""
        if not self._layer.auto_step:
            self._layer.step()

    def state_dict(self) -> dict[str, int]:
        return {"iterations": int(self._layer.iter_num)}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._layer.iter_num = int(state["iterations"])


class Toolkit:
    """What this package asks of TLLib. Classifiers return in training mode logits and features, or MDD's adversarial
    logits, in evaluation mode logits alone. ``get_parameters(base_lr)`` and state dicts are the toolkit's."""

    name = "tllib"
    losses = "tllib.alignment"

    def __init__(self) -> None:
        self._networks = import_module(f"{self.name}.vision.models")
        self._discriminator = import_module(f"{self.name}.modules.domain_discriminator").DomainDiscriminator
        self._cdan = import_module(f"{self.losses}.cdan")
        self._mdd = import_module(f"{self.losses}.mdd")

    def backbone_names(self) -> list[str]:
        networks = vars(self._networks).items()
        return sorted(name for name, value in networks if name.islower() and name[0] != "_" and callable(value))

    def create_backbone(self, name: str) -> Any:
        """Build one of them, images -> (B, C, H, W) or (B, C), with ``out_features`` (int) and random weights."""
        return getattr(self._networks, name)(pretrained=False)

    def classifier(
        self,
        method: str,
        backbone: nn.Module,
        num_classes: int,
        width: int,
        pool_layer: nn.Module,
        finetune: bool = True,
    ) -> Any:
        """The classifier of ``cdan`` or ``mdd``, with a bottleneck and hidden layers of this ``width``."""
        if method == "cdan":
            return self._classifier(self._cdan, (backbone, num_classes, width), pool_layer, finetune)
        return self._classifier(self._mdd, (backbone, num_classes, width, width), pool_layer, finetune)

    def cdan(
        self,
        num_classes: int,
        features_dim: int,
        randomized: bool = False,
        randomized_dim: int = 1024,
        entropy_conditioning: bool = False,
    ) -> AdversarialLoss:
        """The conditional domain adversarial loss with its discriminator (Long et al., NeurIPS 2018)."""
        width = randomized_dim if randomized else num_classes * features_dim
        discriminator = self._discriminator(width, HIDDEN)
        loss = self._cdan.ConditionalDomainAdversarialLoss(discriminator, entropy_conditioning=entropy_conditioning)
        if randomized:
            loss.map = self._random_map(features_dim, num_classes, randomized_dim)
            for name in ("Rf", "Rg"):  # a part of the state: a resumed run needs them
                loss.map.register_buffer(name, vars(loss.map).pop(name))
        return AdversarialLoss(loss)

    def mdd(self, margin: float) -> AdversarialLoss:
        """The margin disparity discrepancy, to be minimised (Zhang et al., ICML 2019)."""
        return AdversarialLoss(self._mdd.ClassificationMarginDisparityDiscrepancy(margin), sign=-1.0)

    def _classifier(self, module: Any, sizes: Any, pool_layer: nn.Module, finetune: bool) -> Any:
        return module.ImageClassifier(*sizes, pool_layer=pool_layer, finetune=finetune)

    def _random_map(self, *sizes: int) -> Any:
        return self._cdan.RandomizedMultiLinearMap(*sizes)


class _Dalib(Toolkit):
    name = "dalib"
    losses = "dalib.adaptation"

    def mdd(self, margin: float) -> AdversarialLoss:
        return AdversarialLoss(self._mdd.MarginDisparityDiscrepancy(margin))

    def _classifier(self, module: Any, sizes: Any, pool_layer: nn.Module, finetune: bool) -> Any:
        return _DalibClassifier(module.ImageClassifier(*sizes), sizes[1], pool_layer, finetune)

    def _random_map(self, *sizes: int) -> Any:
        def forward(layer: Any, f: Tensor, g: Tensor) -> Any:
            return (f @ layer.Rf) * (g @ layer.Rg) / layer.output_dim**0.5

        random_map = super()._random_map(*sizes)
        random_map.forward = MethodType(forward, random_map)  # dalib's multiplies from the wrong side, which fails
        return random_map


class _DalibClassifier(nn.Module):
    """A classifier of dalib with tllib's pooling, outputs and learning rates; its state dict has the same names."""

    def __init__(self, theirs: Any, num_classes: int, pool_layer: nn.Module, finetune: bool):
        super().__init__()
        self.num_classes = num_classes
        self.rates = [group["lr_mult"] if finetune else 1.0 for group in theirs.get_parameters()]
        self.pool_layer = pool_layer
        for name, part in theirs.named_children():
            self.add_module(name, part)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor] | Tensor:
        parts: Any = self._modules
        features = parts["bottleneck"](self.pool_layer(parts["backbone"](images)))
        logits: Tensor = parts["head"](features)
        if not self.training:
            return logits
        if "adv_head" not in parts:
            return logits, features
        return logits, parts["adv_head"](parts["grl_layer"](features))

    def get_parameters(self, base_lr: float = 1.0) -> list[dict[str, Any]]:
        parts = [part for name, part in self.named_children() if name not in ("pool_layer", "grl_layer")]
        rates = zip(parts, self.rates, strict=True)
        return [{"params": part.parameters(), "lr": base_lr * rate} for part, rate in rates]


TOOLKITS: dict[str, type[Toolkit]] = {"tllib": Toolkit, "dalib": _Dalib}


def find(name: str | None = None) -> Toolkit:
    """The toolkit of this name, or ``tllib`` if it is there, else ``dalib``."""
    candidates = list(TOOLKITS) if name is None else [name]
    installed = next(filter(is_installed, candidates), None)
    if installed is None:
        ways = "; or ".join(INSTALL[candidate] for candidate in candidates)
        raise UserError(f"{' and '.join(candidates)} cannot be found. Install it: {ways}")
    spec = find_spec(installed)
    try:
        import_module(installed)
        return TOOLKITS[installed]()
    except Exception as error:  # a file of that name may do anything
        raise UserError(
            f"{installed} ({spec and spec.origin}) does not import as the toolkit ({type(error).__name__}: "
            f"{one_line(error)}). If it is another program's, rename it",
            f"else install what it misses, or reinstall it: {INSTALL[installed]}",
        ) from error
