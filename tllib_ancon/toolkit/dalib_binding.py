"""``dalib`` 0.2, TLLib's release of 2020, behind the interface."""

from __future__ import annotations

from typing import Any

from dalib.adaptation import cdan, mdd
from dalib.adaptation.cdan import ConditionalDomainAdversarialLoss
from dalib.adaptation.mdd import MarginDisparityDiscrepancy
from dalib.modules.domain_discriminator import DomainDiscriminator
from dalib.vision import datasets, models
from torch import Tensor, nn

from tllib_ancon.errors import UserError, unknown_name
from tllib_ancon.pooling import AveragePool
from tllib_ancon.toolkit.adversarial import AdversarialLoss, check_sizes, keep_random_map
from tllib_ancon.toolkit.binding import INSTALL
from tllib_ancon.toolkit.datasets import DatasetTable, dataset_table
from tllib_ancon.toolkit.networks import DIGIT_NETWORKS, create_network, network_names

TLLIB_DATASETS = ("Digits", "ImageNetR", "PACS")
"""Datasets that only tllib has."""


def toolkit() -> DalibToolkit:
    return DalibToolkit()


class DalibToolkit:
    """See :class:`~tllib_ancon.toolkit.interface.Toolkit`."""

    name = "dalib"

    def dataset_names(self) -> list[str]:
        return ["DomainNet", "Office31", "OfficeHome", "VisDA2017"]

    def dataset(self, name: str) -> DatasetTable:
        if name in TLLIB_DATASETS:
            raise _tllib_needed(f"the dataset {name}")
        if name not in self.dataset_names():
            raise unknown_name("dataset", name, [*self.dataset_names(), *TLLIB_DATASETS])
        return dataset_table(name, getattr(datasets, name))

    def backbone_names(self) -> list[str]:
        return network_names(models)

    def create_backbone(self, name: str, pretrained: bool = False) -> nn.Module:
        if name in DIGIT_NETWORKS:
            raise _tllib_needed(f"the network {name}")
        network = create_network(models, name, pretrained)
        network.pools = True
        return network

    def image_classifier(
        self,
        backbone: nn.Module,
        num_classes: int,
        bottleneck_dim: int = 256,
        pool_layer: nn.Module | None = None,
        finetune: bool = True,
    ) -> ImageClassifier:
        check_sizes(num_classes=num_classes, bottleneck_dim=bottleneck_dim)
        return ImageClassifier(backbone, num_classes, bottleneck_dim, pool_layer, finetune)

    def mdd_classifier(
        self,
        backbone: nn.Module,
        num_classes: int,
        bottleneck_dim: int = 1024,
        width: int = 1024,
        pool_layer: nn.Module | None = None,
        finetune: bool = True,
    ) -> MDDClassifier:
        check_sizes(num_classes=num_classes, bottleneck_dim=bottleneck_dim, width=width)
        return MDDClassifier(backbone, num_classes, bottleneck_dim, width, pool_layer, finetune)

    def domain_discriminator(self, in_features: int, hidden: int = 1024) -> nn.Module:
        check_sizes(in_features=in_features, hidden=hidden)
        return DomainDiscriminator(in_features, hidden)

    def cdan(
        self,
        num_classes: int,
        features_dim: int,
        randomized: bool = False,
        randomized_dim: int = 1024,
        entropy_conditioning: bool = False,
        hidden: int = 1024,
    ) -> AdversarialLoss:
        check_sizes(num_classes=num_classes, features_dim=features_dim, randomized_dim=randomized_dim)
        in_features = randomized_dim if randomized else num_classes * features_dim
        loss = ConditionalDomainAdversarialLoss(
            self.domain_discriminator(in_features, hidden), entropy_conditioning=entropy_conditioning
        )
        if randomized:
            loss.map = RandomizedMultiLinearMap(features_dim, num_classes, randomized_dim)
            keep_random_map(loss.map)
        return AdversarialLoss(loss)

    def mdd(self, margin: float = 4.0) -> AdversarialLoss:
        check_sizes(margin=margin)
        return AdversarialLoss(MarginDisparityDiscrepancy(margin))


class ImageClassifier(cdan.ImageClassifier):
    """dalib's classifier with tllib's pooling, outputs and learning rates; the key names stay dalib's."""

    def __init__(
        self,
        backbone: nn.Module,
        num_classes: int,
        bottleneck_dim: int,
        pool_layer: nn.Module | None,
        finetune: bool,
    ):
        super().__init__(backbone, num_classes, bottleneck_dim)
        self.pool_layer = AveragePool() if pool_layer is None else pool_layer
        self.finetune = finetune

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor] | Tensor:
        features = self.bottleneck(self.pool_layer(self.backbone(images)))
        logits = self.head(features)
        return (logits, features) if self.training else logits

    def get_parameters(self, base_lr: float = 1.0) -> list[dict[str, Any]]:
        return _with_rates(super().get_parameters(), base_lr, self.finetune)


class MDDClassifier(mdd.ImageClassifier):
    """The same for MDD."""

    def __init__(
        self,
        backbone: nn.Module,
        num_classes: int,
        bottleneck_dim: int,
        width: int,
        pool_layer: nn.Module | None,
        finetune: bool,
    ):
        super().__init__(backbone, num_classes, bottleneck_dim, width)
        self.pool_layer = AveragePool() if pool_layer is None else pool_layer
        self.num_classes = num_classes
        self.finetune = finetune

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor] | Tensor:
        features = self.bottleneck(self.pool_layer(self.backbone(images)))
        logits = self.head(features)
        return (logits, self.adv_head(self.grl_layer(features))) if self.training else logits

    def get_parameters(self, base_lr: float = 1.0) -> list[dict[str, Any]]:
        return _with_rates(super().get_parameters(), base_lr, self.finetune)


class RandomizedMultiLinearMap(cdan.RandomizedMultiLinearMap):
    """dalib multiplies by its random matrices from the wrong side, which fails; this is the right one."""

    def forward(self, f: Tensor, g: Tensor) -> Tensor:
        return (f @ self.Rf) * (g @ self.Rg) / self.output_dim**0.5


def _with_rates(groups: list[dict[str, Any]], base_lr: float, finetune: bool) -> list[dict[str, Any]]:
    """dalib's ``lr_mult`` as tllib's ``lr``; a network trained from scratch learns at one rate."""
    return [{"params": group["params"], "lr": base_lr * (group["lr_mult"] if finetune else 1.0)} for group in groups]


def _tllib_needed(what: str) -> UserError:
    return UserError(f"{what} is in tllib but not in dalib, the toolkit found here. Install it: {INSTALL['tllib']}")
