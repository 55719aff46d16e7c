"""The adaptation of a model whose output is no logits (B, K): by the statistics of batch-norm, or by entropy."""

from dataclasses import dataclass

import torch
from torch import nn

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.settings import defined
from tllib_ancon.data.loading import ImageLoader, UnlabelledImages, training_loader
from tllib_ancon.models.batch_norm import estimated_statistics
from tllib_ancon.models.calling import output_for
from tllib_ancon.models.classifier import BATCH_NORMS
from tllib_ancon.models.copies import copy_of, in_the_form_of
from tllib_ancon.training import devices
from tllib_ancon.training.inputs import PreparedImages
from tllib_ancon.training.learning import refuse_training_settings
from tllib_ancon.training.online import online
from tllib_ancon.training.result import AdaptationResult, Origin


@dataclass(frozen=True)
class PlanWithoutLogits:
    """The plan to adapt such a model, by ``adabn`` or, of logits (B, K, H, W), by ``tent``; nothing is scored.

    Attributes:
        requested: the settings of the user alone
        module: the caller's model
        prepared: the images, and the settings with every default filled in
        head: the name of the model's head that the user passes
    """

    requested: AdaptConfig
    module: nn.Module
    prepared: PreparedImages[AdaptConfig]
    head: str | None

    def fit(self) -> AdaptationResult:
        config = self.prepared.config
        domain = self.prepared.domain
        transforms = self.prepared.transforms
        if config.method == "adabn":
            refuse_training_settings(self.requested)
        settings = defined({"optimizer": self.requested.optimizer, "lr": self.requested.lr})
        network = copy_of(self.module).float()
        stream = online(network, self.requested.method, batch_norm="target", **settings).to(devices.device())
        images = UnlabelledImages(domain, transforms.train, config.seed)
        batch_size = min(config.batch_size, len(domain))
        loader = training_loader(images, batch_size, config.workers)
        if config.method == "tent":
            for _ in range(config.epochs):
                for _, batch in loader:
                    stream(batch if transforms.augment is None else transforms.augment(batch))
                loader.sampler.epoch += 1
        _estimate_statistics(stream.model, loader)
        adapted = in_the_form_of(self.module, stream.model.eval())
        metrics = [{"epoch": 0}, {"epoch": config.epochs}]
        summary = {
            "method": config.method,
            "criterion": "last",
            "held_out": 0,
            "better_than_start": None,
            "start": metrics[0],
            "selected": metrics[1],
            "last": metrics[1],
        }
        origin = Origin(self.module, domain, transforms.evaluation, self.head)
        return AdaptationResult(adapted, metrics, 1, summary, config, _origin=origin)


def _estimate_statistics(model: nn.Module, loader: ImageLoader) -> None:
    if not any(isinstance(layer, BATCH_NORMS) for layer in model.modules()):
        return
    with estimated_statistics(model), torch.no_grad():
        for _, images in loader:
            output_for(model, images)
