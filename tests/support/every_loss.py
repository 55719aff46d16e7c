"""Every loss takes a step. The workflow runs this file where only torch, numpy and pydantic are installed."""

import torch

from tllib_ancon import (
    AdaptiveSmoothing,
    AnchoredConfidence,
    EarlyLearningRegularization,
    NeighborhoodReciprocity,
    TemporalEnsemble,
    corr_c,
    generalized_cross_entropy,
    infomax,
    mean_entropy,
    methods,
)

torch.manual_seed(0)
indices = torch.arange(20)
features = torch.randn(20, 4)
logits = torch.randn(20, 3, requires_grad=True)
ancon = AnchoredConfidence(20, 3)
smoothing = AdaptiveSmoothing(20, 3)
reciprocity = NeighborhoodReciprocity(20, 3, 4, neighbors=2, expanded_neighbors=2)
reciprocity.initialize(indices, features, logits)
losses = {
    "AnchoredConfidence": -(ancon(indices, logits) * logits.log_softmax(1)).sum(1).mean(),
    "AdaptiveSmoothing": generalized_cross_entropy(logits, smoothing(indices, logits)),
    "EarlyLearningRegularization": EarlyLearningRegularization(20, 3)(indices, logits),
    "NeighborhoodReciprocity": reciprocity(indices, features, logits),
}
for name, loss in losses.items():
    (gradient,) = torch.autograd.grad(loss, logits, retain_graph=True)
    assert gradient.isfinite().all(), name
assert isinstance(ancon.ensemble, TemporalEnsemble)
for criterion in (infomax, corr_c, mean_entropy):
    assert isinstance(criterion(logits.detach().softmax(1)), float)
for name in methods.names():
    methods.create(name, num_samples=20, num_classes=3, feature_dim=4)
print(f"{len(losses)} losses and {len(methods.names())} methods")
