"""
Anchored Confidence: self-training towards pseudo labels that are smoothed with their own history.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

__all__ = ["AnchoredConfidenceLoss"]


class AnchoredConfidenceLoss(nn.Module):
    r"""
    The loss of AnCon from `Improving Self-Training Under Distribution Shifts via Anchored Confidence With Theoretical
    Guarantees (NeurIPS 2024) <https://arxiv.org/abs/2411.00586>`_.

    It needs images of the target domain alone: neither their labels nor the source domain. The pseudo label
    :math:`\hat{y}` of an image, the class of its largest logit, is smoothed with the votes of its earlier visits,

    .. math::
        \tilde{y} = (1 - \lambda) \, \text{onehot}(\hat{y}) + \lambda \, v,

    and the loss is the cross entropy with it, :math:`-\sum_k \tilde{y}_k \log p_k`, averaged over the minibatch. The
    votes :math:`v` of an image count how often each class was predicted for it with a confidence
    :math:`c = \max_k p_k` of at least

    .. math::
        \delta \leftarrow \beta \, \delta + (1 - \beta) \, \text{mean}(c),

    which is updated before a minibatch is compared with it and starts as the first mean. A visit reads the votes before
    it adds its own. They are counts, not shares: an image on which confident predictions agree weighs more the longer
    they do.

    Args:
        num_samples (int): number of images in the whole target domain
        num_classes (int): number of classes
        smoothing (float): weight :math:`\lambda` of the votes; 0 is plain self-training. Default: 0.3
        beta (float): decay :math:`\beta` of the moving average of the confidence. Default: 0.9

    .. note::
        In evaluation mode the votes and the threshold are read and stay as they are. Both are buffers: they move with
        the module and belong to its state dict, so that a training that is continued keeps them.

    Inputs:
        - y (tensor): unnormalized classifier predictions on the target domain
        - indices (tensor): position of each image in the target domain, from 0 to `num_samples` - 1, the same in
          every epoch

    Shape:
        - y: :math:`(minibatch, C)` where C means the number of classes.
        - indices: :math:`(minibatch, )`, int64.
        - Outputs: scalar.

    Examples::
        >>> num_samples, num_classes, batch_size = 795, 31, 32
        >>> loss = AnchoredConfidenceLoss(num_samples, num_classes)
        >>> # logits output from target domain, and which images they are of
        >>> y_t = torch.randn(batch_size, num_classes, requires_grad=True)
        >>> indices = torch.randperm(num_samples)[:batch_size]
        >>> output = loss(y_t, indices)
        >>> output.backward()
    """

    def __init__(self, num_samples: int, num_classes: int, smoothing: float = 0.3, beta: float = 0.9):
        super().__init__()
        self.smoothing = smoothing
        self.beta = beta
        self.register_buffer("votes", torch.zeros(num_samples, num_classes, dtype=torch.int32))
        self.register_buffer("threshold", torch.tensor(float("nan")))  # until the first minibatch

    def forward(self, y: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        indices = indices.to(self.votes.device)
        confidence, pseudo_labels = F.softmax(y.detach().float(), dim=1).max(dim=1)
        votes = self.votes[indices].float()
        if self.training:
            self._vote(indices, confidence, pseudo_labels)

        targets = (1 - self.smoothing) * F.one_hot(pseudo_labels, y.size(1)) + self.smoothing * votes
        return -(targets * F.log_softmax(y, dim=1)).sum(dim=1).mean()

    def _vote(self, indices: torch.Tensor, confidence: torch.Tensor, pseudo_labels: torch.Tensor) -> None:
        mean = confidence.mean()
        before = torch.where(self.threshold.isnan(), mean, self.threshold)
        self.threshold.copy_(self.beta * before + (1 - self.beta) * mean)
        confident = (confidence >= self.threshold).int()
        self.votes.index_put_((indices, pseudo_labels), confident, accumulate=True)
