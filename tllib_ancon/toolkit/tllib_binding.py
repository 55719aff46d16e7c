"""``tllib`` 0.4 behind the interface."""

from __future__ import annotations

from tllib.alignment.cdan import ConditionalDomainAdversarialLoss, ImageClassifier
from tllib.alignment.mdd import ClassificationMarginDisparityDiscrepancy
from tllib.alignment.mdd import ImageClassifier as MDDClassifier
from tllib.modules.domain_discriminator import DomainDiscriminator
from tllib.vision import datasets, models
from torch import nn

from tllib_ancon.errors import unknown_name
from tllib_ancon.pooling import AveragePool
from tllib_ancon.toolkit.adversarial import AdversarialLoss, check_sizes, keep_random_map
from tllib_ancon.toolkit.datasets import DatasetTable, dataset_table, digits_table
from tllib_ancon.toolkit.networks import DIGIT_NETWORKS, create_network, network_names

DIGITS = ("MNIST", "USPS", "SVHN", "MNISTRGB", "USPSRGB", "SVHNRGB")


def toolkit() -> TllibToolkit:
    return TllibToolkit()


class TllibToolkit:
    """See :class:`~tllib_ancon.toolkit.interface.Toolkit`."""

    name = "tllib"

    def dataset_names(self) -> list[str]:
        return sorted([*(name for name, value in vars(datasets).items() if _has_domains(value)), "Digits"])

    def dataset(self, name: str) -> DatasetTable:
        if name not in self.dataset_names():
            raise unknown_name("dataset", name, self.dataset_names())
        if name == "Digits":
            return digits_table({code: getattr(datasets, code) for code in DIGITS})
        return dataset_table(name, getattr(datasets, name))

    def backbone_names(self) -> list[str]:
        return network_names(models)

    def create_backbone(self, name: str, pretrained: bool = False) -> nn.Module:
        network = create_network(models, name, pretrained)
        network.pools = name in DIGIT_NETWORKS
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
        pool_layer = AveragePool() if pool_layer is None else pool_layer
        return ImageClassifier(backbone, num_classes, bottleneck_dim, pool_layer=pool_layer, finetune=finetune)

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
        pool_layer = AveragePool() if pool_layer is None else pool_layer
        return MDDClassifier(backbone, num_classes, bottleneck_dim, width, finetune=finetune, pool_layer=pool_layer)

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
            self.domain_discriminator(in_features, hidden),
            entropy_conditioning=entropy_conditioning,
            randomized=randomized,
            num_classes=num_classes,
            features_dim=features_dim,
            randomized_dim=randomized_dim,
        )
        if randomized:
            keep_random_map(loss.map)
        return AdversarialLoss(loss)

    def mdd(self, margin: float = 4.0) -> AdversarialLoss:
        check_sizes(margin=margin)
        return AdversarialLoss(ClassificationMarginDisparityDiscrepancy(margin), sign=-1.0)


def _has_domains(value: object) -> bool:
    """Leaves out what else that module holds: functions, datasets of one domain or without a list."""
    return (
        isinstance(value, type)
        and issubclass(value, datasets.ImageList)
        and hasattr(value, "CLASSES")
        and "domains" in vars(value)
    )
