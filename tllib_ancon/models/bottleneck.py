"""Classifiers of TLLib's parts: backbone, pooling, bottleneck and head."""

from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from tllib_ancon.models.classifier import Classifier, LogitsAndFeatures
from tllib_ancon.models.preprocessing import preprocessing_of


class BottleneckClassifier(Classifier):
    """TLLib's classifier: images -> backbone (B, C, H, W) or (B, C) -> average of a feature map by ``pool`` ->
    bottleneck (B, D) -> head (B, K)."""

    features_dim: int
    head: nn.Module

    def __init__(
        self,
        backbone: nn.Module,
        num_classes: int,
        bottleneck: nn.Module,
        head: nn.Module,
        features_dim: int,
        pool: bool = True,
        finetune: bool = True,
    ):
        super().__init__()
        self.backbone = backbone
        self.bottleneck = bottleneck
        self.head = head
        self.pool_layer = create_pool_layer(pool)
        self.num_classes = num_classes
        self.features_dim = features_dim
        self.finetune = finetune
        self.preprocessing = preprocessing_of(backbone)

    def predict(self, images: Tensor) -> LogitsAndFeatures:
        features = self.bottleneck(self.pool_layer(self.backbone(images)))
        return self.head(features), features


def shot_classifier(
    backbone: nn.Module,
    num_classes: int,
    bottleneck_dim: int = 256,
    pool: bool = True,
    finetune: bool = True,
    dropout: float = 0.0,
) -> BottleneckClassifier:
    """The network of SHOT and AnCon: a Linear bottleneck with batch-norm and no ReLU, a weight-normalised head.

    Source: Liang et al., "Do We Really Need to Access the Source Data?", ICML 2020, Section 3.1; the paper's Section
    4.1.
    """
    linear = nn.Linear(backbone.out_features, bottleneck_dim)  # type: ignore[arg-type]
    batch_norm = nn.BatchNorm1d(bottleneck_dim)
    nn.init.xavier_normal_(linear.weight)
    nn.init.zeros_(linear.bias)
    nn.init.normal_(batch_norm.weight, 1.0, 0.02)
    bottleneck = nn.Sequential(linear, batch_norm)
    head = nn.Linear(bottleneck_dim, num_classes)
    nn.init.xavier_normal_(head.weight)
    nn.init.zeros_(head.bias)
    model = BottleneckClassifier(backbone, num_classes, bottleneck, weight_norm(head), bottleneck_dim, pool, finetune)
    if dropout:
        model.drop_features(dropout)
    return model


class _AveragePool(nn.Module):
    """(B, C, H, W) -> (B, C), averaged as in TLLib; (B, C) is returned unchanged."""

    def forward(self, features: Tensor) -> Tensor:
        if features.ndim == 2:
            return features
        return nn.functional.adaptive_avg_pool2d(features, 1).flatten(1)


def create_pool_layer(pool: bool) -> nn.Module:
    """The average of a feature map, or without ``pool`` the identity."""
    if pool:
        return _AveragePool()
    return nn.Identity()
