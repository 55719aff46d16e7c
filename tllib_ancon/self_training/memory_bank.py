"""Memory bank of features and predictions, and the losses over a sample's neighbours in it."""

from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.config.types import Share
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.errors import NotFinite, UserError
from tllib_ancon.self_training.checks import FixedPrecision, check_tensor, check_visit, finite_rows
from tllib_ancon.self_training.ensemble import TemporalEnsemble
from tllib_ancon.self_training.method import Method, Visit
from tllib_ancon.self_training.voting import WithVotes


class WholePass(FixedPrecision):
    """Base of a state that needs one pass over all N samples, of K classes and D features, before the first step."""

    has_pass: Tensor

    def __init__(self, sizes: tuple[int, int, int]):
        super().__init__()
        self.sizes = sizes  # N, K and D
        self.register_buffer("has_pass", torch.tensor(False))
        self._known_to_have_pass = False

    def accept_pass(self, indices: Tensor, features: Tensor, logits: Tensor) -> None:
        """Take note of a pass, (M,), (M, D), (M, K), in which no sample may be missing or not finite."""
        check_visit(indices, logits, self.sizes, features)
        seen = len(torch.unique(indices))
        if seen < self.sizes[0]:
            raise UserError(
                f"the pass holds {seen} of {self.sizes[0]} samples",
                "make it over the whole target set, with drop_last=False",
            )
        if not (features.isfinite().all() and logits.isfinite().all()):
            raise NotFinite("the pass holds features or logits that are not finite", "the model has probably diverged")
        self.has_pass.fill_(True)

    def require_pass(self) -> None:
        if not self._known_to_have_pass and not self.has_pass:
            raise UserError(
                "the whole target set has not been seen yet: call initialize(indices, features, logits) with one "
                "evaluation pass before the first step"
            )
        self._known_to_have_pass = True  # reading the buffer stalls a device: once only


class Neighborhood(WholePass):
    """Base of losses over a sample's nearest samples in a memory. It holds the feature, of length 1, and the prediction
    of every sample, as of its last finite visit.

    Args:
        sizes: N images of the whole target set, K classes, D features before the head
        anchor_weight (float): weight of the anchors beside the remembered predictions s, in [0, 1]
    """

    refresh = "start"
    normalizes_anchors = False
    """Whether anchors enter as a distribution, so that a sample without a vote keeps s."""
    features: Tensor
    scores: Tensor

    def __init__(self, sizes: tuple[int, int, int], anchor_weight: Share):
        super().__init__(sizes)
        num_samples, num_classes, feature_dim = sizes
        self.register_buffer("features", torch.zeros(num_samples, feature_dim))
        self.register_buffer("scores", torch.zeros(num_samples, num_classes))
        self.anchor_weight = anchor_weight

    def initialize(self, indices: Tensor, features: Tensor, logits: Tensor) -> None:
        """Fill the memory from one evaluation pass, (M,), (M, D), (M, K), that holds each sample."""
        self.accept_pass(indices, features, logits)
        self.write(indices, features, logits.float().softmax(1))

    def forward(
        self,
        indices: Tensor,
        features: Tensor,
        logits: Tensor,
        anchors: Tensor | None = None,
        predictions: Tensor | None = None,
    ) -> Tensor:
        check_visit(indices, logits, self.sizes, features)
        self.require_pass()
        rows = indices.to(logits.device, non_blocking=True)
        probabilities = logits.float().softmax(1)
        remembered = probabilities if predictions is None else predictions.softmax(1)
        self.write(processes.gather(rows), processes.gather(features.float()), processes.gather(remembered))
        return self.loss(rows, probabilities, anchors)

    def loss(self, indices: Tensor, predictions: Tensor, anchors: Tensor | None) -> Tensor:
        """The loss of predictions (B, K), whose gradient it needs, with the memory as of this visit."""
        raise NotImplementedError

    @torch.no_grad()
    def write(self, indices: Tensor, features: Tensor, probabilities: Tensor) -> None:
        """Remember the features and predictions of these samples, but for rows that are not finite."""
        rows = indices.to(self.features.device, non_blocking=True)
        directions = nn.functional.normalize(features.float()).to(self.features.device)
        scores = probabilities.to(self.scores.device)
        usable = finite_rows(directions, scores)[:, None]
        self.features[rows] = torch.where(usable, directions, self.features[rows])
        self.scores[rows] = torch.where(usable, scores, self.scores[rows])

    def nearest(self, rows: Tensor, k: int) -> Tensor:
        """The k samples (..., k) whose features are nearest to those of the samples in these rows (...) by cosine, best
        first; at most all other ones."""
        queries = rows.flatten()
        products = self.features.new_empty(len(queries), len(self.features))
        torch.mm(self.features[queries], self.features.T, out=products)  # with out=, autocast leaves it alone
        products.scatter_(1, queries[:, None], -torch.inf)
        nearest = products.topk(min(k, len(self.features) - 1)).indices
        return nearest.view(*rows.shape, -1)

    def remembered(self, rows: Tensor, anchors: Tensor | None) -> Tensor:
        """Predictions (B, M, K) of rows (B, M), with anchors f̄ (B, K), votes of the batch, mixed in."""
        scores = self.scores[rows]
        if anchors is None:
            return scores
        check_tensor("anchors", anchors, (len(rows), scores.shape[2]))
        votes = anchors.detach().float().unsqueeze(1)
        mass = votes.sum(2, keepdim=True)
        weight = self.anchor_weight
        if not self.normalizes_anchors:
            return weight * votes + (1 - weight) * scores
        distribution = votes / mass.clamp_min(torch.finfo(votes.dtype).tiny)
        return torch.where(mass > 0, weight * distribution + (1 - weight) * scores, scores)


class NeighborMethod(Method):
    """Base of methods whose loss is one over neighbours, which may mix votes into the memory's predictions."""

    learns_from_both_views = False
    neighborhood: Neighborhood

    def targets(self, visit: Visit) -> Tensor | None:
        return None

    def objective(self, visit: Visit, targets: Tensor | None) -> Tensor:
        loss: Tensor = self.neighborhood(visit.indices, visit.features, visit.logits, targets, visit.predictions)
        return loss


class NeighborVotes(WithVotes, NeighborMethod):
    """Base of compositions that hand the votes to a :class:`NeighborMethod`, in place of targets."""

    def __init__(self, **sizes_and_options: Any):
        super().__init__(**sizes_and_options)
        self.neighborhood.anchor_weight = self.smoothing
        self.vote_ensemble = TemporalEnsemble(self.num_rows, self.num_classes, **self.ensemble_options())

    def targets(self, visit: Visit) -> Tensor:
        votes: Tensor = self.vote_ensemble(visit.rows, visit.predictions, visit.probabilities)
        return votes
