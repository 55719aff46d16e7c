"""What is trained and adapted: a network that gives logits and features. TLLib's is backbone, bottleneck and head."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from tllib_ancon.errors import UserError
from tllib_ancon.models.preprocessing import Preprocessing
from tllib_ancon.pooling import AveragePool

MOST_WEIGHTS = 2**30
"""Of one layer: 4 GB in float32."""


class Classifier(nn.Module):
    """Images -> logits and features, with the interface of TLLib's classifiers.

    Attributes:
        num_classes (int): K
        features_dim (int, optional): D; None if the network has no features, which are then (B, 0)
        head (nn.Module, optional): features (B, D) -> logits (B, K), a part of this module
        preprocessing (Preprocessing, optional): what its images should be like, where that is known

    Inputs: images (B, C, H, W)

    Outputs of :meth:`predict`: logits (B, K) and features (B, D), in any mode. Of calling the module: the same in
    training mode, logits alone in evaluation mode, as TLLib's utilities expect.
    """

    num_classes: int
    features_dim: int | None
    finetune: bool
    preprocessing: Preprocessing | None = None

    if TYPE_CHECKING:

        @property
        def head(self) -> nn.Module | None: ...

    def predict(self, images: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor] | Tensor:
        logits, features = self.predict(images)
        return (logits, features) if self.training else logits

    def get_parameters(self, base_lr: float = 1.0) -> list[dict[str, Any]]:
        """Groups of the parameters that learn, with TLLib's rates: 0.1 for a pre-trained backbone, 1 for the rest."""
        groups = [
            {"params": [parameter for parameter in parameters if parameter.requires_grad], "lr": rate * base_lr}
            for parameters, rate in self._rates()
        ]
        return [group for group in groups if group["params"]]

    def _rates(self) -> list[tuple[Iterable[nn.Parameter], float]]:
        """Parameters of each part and the factor of their learning rate."""
        raise NotImplementedError


class BottleneckClassifier(Classifier):
    """The classifier that TLLib's scripts put together.

    Args:
        backbone (nn.Module): images -> (B, C, H, W) or (B, C), with ``out_features``
        num_classes (int): K
        bottleneck (nn.Module): (B, C) -> (B, D)
        head (nn.Module): (B, D) -> (B, K)
        features_dim (int): D
        pool_layer (nn.Module, optional): applied to the backbone's output. Default: global average pooling
        finetune (bool): the backbone is pre-trained and learns at a tenth of the rate. Default: True
    """

    features_dim: int
    head: nn.Module

    def __init__(
        self,
        backbone: nn.Module,
        num_classes: int,
        bottleneck: nn.Module,
        head: nn.Module,
        features_dim: int,
        pool_layer: nn.Module | None = None,
        finetune: bool = True,
    ):
        super().__init__()
        self.backbone = backbone
        self.pool_layer = AveragePool() if pool_layer is None else pool_layer
        self.bottleneck = bottleneck
        self.head = head
        self.num_classes = num_classes
        self.features_dim = features_dim
        self.finetune = finetune

    def predict(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.bottleneck(self.pool_layer(self.backbone(images)))
        return self.head(features), features

    def drop_features(self, probability: float) -> None:
        """Add dropout with this probability after the bottleneck; the state dict stays the same.

        Raises:
            UserError: there is no bottleneck, or it has dropout already
        """
        layers = list(self.bottleneck) if isinstance(self.bottleneck, nn.Sequential) else []
        if not layers or isinstance(layers[-1], nn.Dropout):
            found = "has dropout there already" if layers else "has no bottleneck"
            raise UserError(f"`bottleneck_dropout={probability:g}`: this model {found}; leave it out")
        self.bottleneck = nn.Sequential(*layers, nn.Dropout(probability))

    def _rates(self) -> list[tuple[Iterable[nn.Parameter], float]]:
        backbone_rate = 0.1 if self.finetune else 1.0
        rates = ((self.backbone, backbone_rate), (self.bottleneck, 1.0), (self.head, 1.0))
        return [(part.parameters(), rate) for part, rate in rates]


def shot_classifier(
    backbone: nn.Module,
    num_classes: int,
    bottleneck_dim: int = 256,
    pool_layer: nn.Module | None = None,
    finetune: bool = True,
) -> BottleneckClassifier:
    """The network of SHOT and AnCon: a Linear bottleneck with batch-norm and no ReLU, a weight-normalised head.

    Args:
        backbone (nn.Module): with ``out_features``
        num_classes (int): K
        bottleneck_dim (int): D. Default: 256
        pool_layer (nn.Module, optional): of the backbone's output. Default: global average pooling
        finetune (bool): the backbone is pre-trained. Default: True

    Source: Liang et al., "Do We Really Need to Access the Source Data?", ICML 2020, Section 3.1 (layers and their
    initialisation); the paper's Section 4.1 uses the same.

    Raises:
        UserError: a layer of more weights than any network needs
    """
    width = out_features(backbone)
    require_modest_layer(width, bottleneck_dim, "bottleneck_dim")
    require_modest_layer(bottleneck_dim, num_classes, "num_classes")
    linear, batch_norm = nn.Linear(width, bottleneck_dim), nn.BatchNorm1d(bottleneck_dim)
    nn.init.xavier_normal_(linear.weight)
    nn.init.zeros_(linear.bias)
    nn.init.normal_(batch_norm.weight, 1.0, 0.02)
    bottleneck = nn.Sequential(linear, batch_norm)
    head = nn.Linear(bottleneck_dim, num_classes)
    nn.init.xavier_normal_(head.weight)
    nn.init.zeros_(head.bias)
    return BottleneckClassifier(
        backbone, num_classes, bottleneck, weight_norm(head), bottleneck_dim, pool_layer, finetune
    )


def out_features(backbone: nn.Module) -> int:
    """C, the channels of a backbone's output, which it must tell.

    Raises:
        UserError: it does not
    """
    width = getattr(backbone, "out_features", None)
    if not isinstance(width, int):
        raise UserError(f"the backbone {type(backbone).__name__} needs a whole number `out_features`, has {width!r}")
    return width


def require_modest_layer(inputs: int, outputs: int, setting: str) -> None:
    """Refuse a number of outputs before memory for them is asked for.

    Raises:
        UserError: more than :data:`MOST_WEIGHTS` weights
    """
    if inputs * outputs > MOST_WEIGHTS:
        raise UserError(
            f"`{setting}` {outputs}: a layer from {inputs} to {outputs} numbers has {inputs * outputs:.1e} weights; "
            f"at most {MOST_WEIGHTS // inputs} are possible here"
        )


def adaptation_mode(model: nn.Module, dropout: bool = False) -> nn.Module:
    """Batch statistics in batch-norm, as in the authors' code, and no noise in the pseudo-labels, which are taken from
    this same forward pass.

    Everything but batch-norm is in evaluation mode, so that dropout inside a network's own functions is off as well;
    the model itself counts as training, so that calling it gives logits and features.

    Args:
        model (nn.Module): its mode is set
        dropout (bool): leave dropout and stochastic depth on, as the authors do. Default: False
    """
    if dropout:
        return model.train()
    model.eval()
    model.training = True
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.train()
    return model
