"""The loaders of an adaptation: the target divided into images to adapt on, a hold-out and a sample."""

import torch
from torch import Tensor

from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.loading import ImageLoader, UnlabelledImages, evaluation_loader, hold_out, training_loader
from tllib_ancon.opening.defaults import USUAL_BATCH
from tllib_ancon.opening.transforms import Transforms
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.processes import Shard
from tllib_ancon.self_training.method import Method

SAMPLE = 1024
"""Images at most, from which the mixing weight and label-free scores are estimated."""

AGREEMENT_SAMPLE = 256
"""Images at most of that sample, on which the source model is compared with the model of half-mixed statistics."""


class TargetLoaders:
    """The target, divided into images to adapt on and images held out. Each loader yields this process's share.

    Attributes:
        adapted_indices: positions in the target of the images to adapt on, of all processes
        shard: which of these this process visits
        num_held_out: images that select the epoch; with none those adapted on do
        training: what the steps see; the other loaders are for evaluation
        adapted, held_out, target: the images of these parts
        sampled: positions of a sample among the images to adapt on; all, where the method does not train or a hold-out
            selects the epoch
        sample, first_of_sample: its images, and the first 256 of them
    """

    def __init__(self, target: ImageSource, settings: AdaptConfig, transforms: Transforms):
        self.adapted_indices, held_out_indices = hold_out(len(target), settings.held_out_share, settings.seed)
        self.num_held_out = len(held_out_indices)
        self.evaluation = transforms.evaluation
        self.workers = settings.workers
        adapted = target.subset(self.adapted_indices)
        self.shard = Shard.of_this_process(len(adapted))
        images = UnlabelledImages(adapted, transforms.train, settings.seed)
        self.training = training_loader(images, settings.batch_size, self.workers)
        self.adapted = self._evaluating(adapted, settings.batch_size)
        self.held_out = self._evaluating(target.subset(held_out_indices), settings.batch_size)
        self.target = self._evaluating(target, settings.batch_size)
        sample_suffices = methods.method_class(settings.method).trains and self.num_held_out == 0
        generator = torch.Generator().manual_seed(settings.seed)
        order = torch.randperm(len(adapted), generator=generator)
        self.sampled = order[:SAMPLE] if sample_suffices else order
        sample_batch = max(self.training.batch_size, USUAL_BATCH)
        self.sample = self._evaluating(adapted.subset(self.sampled), sample_batch)
        self.first_of_sample = self._evaluating(adapted.subset(self.sampled[:AGREEMENT_SAMPLE]), sample_batch)

    def votes_of_the_target(self, method: Method) -> Tensor | None:
        """f̄ of every image of the target, (N, K); zeros for one that was held out. None for a method without votes."""
        votes = method.votes(torch.tensor(self.shard.padded_positions))
        if votes is None:
            return None
        of_all_images = torch.zeros(len(self.target.dataset), *votes.shape[1:])
        of_all_images[self.adapted_indices] = processes.interleave(votes)[: len(self.adapted_indices)].cpu()
        return of_all_images

    def _evaluating(self, domain: ImageSource, batch_size: int) -> ImageLoader:
        return evaluation_loader(UnlabelledImages(domain, self.evaluation), batch_size, self.workers)
