"""The one interface to ``tllib`` and ``dalib``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import nn

    from tllib_ancon.toolkit.adversarial import AdversarialLoss
    from tllib_ancon.toolkit.datasets import DatasetTable


class Toolkit(Protocol):
    """What this package asks of a toolkit.

    Classifiers return logits and a second output in training mode, logits alone in evaluation mode; the
    second output is the features, or MDD's adversarial logits. Their ``get_parameters(base_lr)`` gives groups
    ``{"params": ..., "lr": ...}`` with TLLib's multipliers (0.1 for a pre-trained backbone, 1 for the rest),
    their state dict has the toolkit's key names.
    """

    name: str

    def dataset_names(self) -> list[str]:
        """Datasets of images in lists, with several domains."""
        ...

    def dataset(self, name: str) -> DatasetTable:
        """Where a dataset's images are listed; reads nothing from disk and downloads nothing.

        Raises:
            UserError: an unknown dataset, or one that the other toolkit has
        """
        ...

    def backbone_names(self) -> list[str]:
        """The toolkit's own networks: ResNets, and in ``tllib`` the digit networks."""
        ...

    def create_backbone(self, name: str, pretrained: bool = False) -> nn.Module:
        """Build one of them, with ``out_features`` (int) and ``pools`` (its output is (B, D) already).

        Raises:
            UserError: an unknown network, or one that the other toolkit has; pre-trained weights that do not
                exist or cannot be downloaded
        """
        ...

    def image_classifier(
        self,
        backbone: nn.Module,
        num_classes: int,
        bottleneck_dim: int = 256,
        pool_layer: nn.Module | None = None,
        finetune: bool = True,
    ) -> Any:
        """The classifier of CDAN (also of DANN, MCC, ...): Linear, batch-norm, ReLU, Linear.

        Args:
            backbone: images -> (B, C, H, W) or (B, C), with ``out_features``
            num_classes: K
            bottleneck_dim: D
            pool_layer: applied to the backbone's output. Default: average pooling if there is a map to pool
            finetune: the backbone is pre-trained and learns at a tenth of the rate
        """
        ...

    def mdd_classifier(
        self,
        backbone: nn.Module,
        num_classes: int,
        bottleneck_dim: int = 1024,
        width: int = 1024,
        pool_layer: nn.Module | None = None,
        finetune: bool = True,
    ) -> Any:
        """The classifier of MDD: a bottleneck and two heads of two layers; the adversarial one gets reversed
        gradients. ``width`` is that of the heads' hidden layer, the rest as in :meth:`image_classifier`."""
        ...

    def domain_discriminator(self, in_features: int, hidden: int = 1024) -> nn.Module:
        """Features (B, in_features) -> probability (B, 1) that they are from the source domain."""
        ...

    def cdan(
        self,
        num_classes: int,
        features_dim: int,
        randomized: bool = False,
        randomized_dim: int = 1024,
        entropy_conditioning: bool = False,
        hidden: int = 1024,
    ) -> AdversarialLoss:
        """The conditional domain adversarial loss with its discriminator (Long et al., NeurIPS 2018)."""
        ...

    def mdd(self, margin: float = 4.0) -> AdversarialLoss:
        """The margin disparity discrepancy, to be minimised (Zhang et al., ICML 2019)."""
        ...
