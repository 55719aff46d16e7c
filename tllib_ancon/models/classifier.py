"""What is trained and adapted: a network that gives logits and features.

TLLib's is backbone, bottleneck and head; any other is a whole network whose head is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.models.calling import as_inputs_of, called
from tllib_ancon.models.copies import require_true_copy, unwrapped
from tllib_ancon.models.head import inspect
from tllib_ancon.models.output import OutputReader
from tllib_ancon.models.preprocessing import preprocessing_of
from tllib_ancon.outputs import from_one_logit
from tllib_ancon.runtime.errors import BadModel, named

ParameterGroups = list[dict[str, Any]]
"""Parameters with their learning rates, as an optimiser takes them."""

LogitsAndFeatures = tuple[Tensor, Tensor]
"""(B, K) and (B, D)."""

BATCH_NORMS = nn.modules.batchnorm._BatchNorm


class Classifier(nn.Module):
    """Images (B, C, H, W) -> logits (B, K) and features (B, D), with the interface of TLLib's classifiers.

    :meth:`predict` gives both in any mode. Calling the module does so in training mode, and gives logits alone in
    evaluation mode, as TLLib's utilities expect.
    """

    num_classes: int  # K
    features_dim: int | None  # D; None if the network has no features, which are then (B, 0)
    bottleneck: nn.Module
    head: nn.Module | None  # features (B, D) -> logits (B, K), a part of this module
    finetune: bool  # the network is pre-trained and learns at a tenth of the rate of its new layers
    preprocessing: Preprocessing | None = None  # what its images should be like, where that is known
    head_name: str | None = "head"  # the head's name in the network; None for a network without one
    reader: OutputReader = OutputReader()  # gives the logits in what the network returns

    def release(self) -> nn.Module:
        """The network of the caller, without hooks; a classifier of TLLib's parts is its own network."""
        return self

    def predict(self, images: Any) -> LogitsAndFeatures:
        raise NotImplementedError

    def forward(self, images: Tensor) -> LogitsAndFeatures | Tensor:
        logits, features = self.predict(images)
        if self.training:
            return logits, features
        return logits

    def get_parameters(self, base_lr: float = 1.0) -> ParameterGroups:
        """Groups of the parameters that learn, with TLLib's rates: 0.1 for a pre-trained backbone, else 1."""
        new_parts = [getattr(self, "bottleneck", None), self.head]
        new_groups = [trainable(part) for part in new_parts if part is not None]
        new_parameters = set(chain.from_iterable(new_groups))
        backbone = [parameter for parameter in trainable(self) if parameter not in new_parameters]
        backbone_rate = base_lr
        if self.finetune:
            backbone_rate = 0.1 * base_lr
        groups = [{"params": backbone, "lr": backbone_rate}]
        groups += [{"params": parameters, "lr": base_lr} for parameters in new_groups]
        return [group for group in groups if group["params"]]

    def drop_features(self, probability: float) -> None:
        """Add dropout with this probability after the bottleneck; the state dict stays the same."""
        layers: Any = self.bottleneck
        self.bottleneck = nn.Sequential(*layers, nn.Dropout(probability))


def trainable(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


class _NetworkClassifier(Classifier):
    """A whole network, whose state dict and names of parameters this has, and its head, a module by its dotted name.

    If the logits are the mean of several heads, their names have commas between them. ``widths`` maps the name
    of each to D. The head has a forward hook until :meth:`release`.
    """

    def __init__(
        self,
        network: nn.Module,
        num_classes: int,
        widths: dict[str, int],
        finetune: bool,
        reader: OutputReader,
        preprocessing: Preprocessing | None,
    ):
        super().__init__()
        self.network = network
        self.num_classes = num_classes
        self.finetune = finetune
        self.reader = reader
        self.preprocessing = preprocessing
        self.widths = [*widths.values()]
        self.head_name = ",".join(widths) or None
        self.features_dim = sum(self.widths) or None
        self._features: dict[str, Any] = {}
        self._hooks = {}
        for name in widths:
            head = network.get_submodule(name)
            self._hooks[name] = head.register_forward_pre_hook(partial(_keep_features, self._features, name))

    def release(self) -> nn.Module:
        """The network, without the hook; this object finds its features no more."""
        for hook in self._hooks.values():
            hook.remove()
        self._hooks = {}
        return self.network

    @property
    def head(self) -> nn.Module | None:  # type: ignore[override]
        if self.head_name is None:
            return None
        modules = [self.network.get_submodule(name) for name in self.head_name.split(",")]
        heads = [_on_vectors(module) for module in modules]
        head = heads[0]
        if len(heads) > 1:
            head = _MeanOfHeads(heads, self.widths)
        if getattr(modules[0], "out_features", 0) == 1:
            return nn.Sequential(head, _TwoLogits())
        return head

    def predict(self, images: Tensor) -> LogitsAndFeatures:
        output = self.network(images)
        features = [self._features.pop(name) for name in self._hooks]
        logits = self.reader(output, len(images), self.network.training)
        if logits.shape[1] != self.num_classes:
            raise BadModel(
                f"the model has {self.num_classes} classes and returns logits {tuple(logits.shape)} in training mode",
                f"return the same in both modes, or pass {named('output')}, a function that finds them",
                setting="output",
            )
        if not features:
            return logits, logits.new_empty(len(logits), 0)
        return logits, torch.cat(features, 1)

    def state_dict(self, *args: Any, **options: Any) -> Any:
        return self.network.state_dict(*args, **options)

    def load_state_dict(self, *args: Any, **options: Any) -> Any:
        return self.network.load_state_dict(*args, **options)

    def named_parameters(self, *args: Any, **options: Any) -> Any:
        return self.network.named_parameters(*args, **options)


def _keep_features(features: dict[str, Any], name: str, head: nn.Module, inputs: tuple[Any, ...]) -> None:
    """Keep what entered a head last."""
    features[name] = inputs[0].flatten(1)


class _MeanOfHeads(nn.Module):
    """Features of several heads side by side, (B, D_1 + D_2 + …) -> mean of their logits (B, K)."""

    def __init__(self, heads: Sequence[nn.Module], widths: Sequence[int]):
        super().__init__()
        self.heads = nn.ModuleList(heads)
        self.widths = [*widths]

    def forward(self, features: Tensor) -> Tensor:
        features_by_head = torch.split(features, self.widths, 1)
        logits = [head(inputs) for head, inputs in zip(self.heads, features_by_head, strict=True)]
        return torch.stack(logits).mean(0)


class _TwoLogits(nn.Module):
    def forward(self, logits: Tensor) -> Tensor:
        return from_one_logit(logits)


def _on_vectors(head: nn.Module) -> nn.Module:
    """A head for features (B, D), which a convolution takes as (B, D, 1, 1)."""
    if isinstance(head, nn.Conv2d):
        return nn.Sequential(nn.Unflatten(1, (-1, 1, 1)), head, nn.Flatten())
    return head


def as_classifier(
    model: nn.Module,
    probe: Tensor,
    head: str | None = None,
    finetune: bool = True,
    reader: OutputReader = OutputReader(),  # noqa: B008
    *,
    num_classes: int = 0,
    original: nn.Module | None = None,
) -> Classifier:
    """Any network that ends in logits as a :class:`Classifier`; a classifier is called and returned unchanged.

    One forward pass in evaluation mode, without gradients, checks the logits and finds the head: the Linear,
    convolution or :class:`~tllib_ancon.models.foundation.CosineHead` that takes (B, D) or (B, D, 1, 1) and returns the
    logits. The features are what enters it. Without such a module ``features_dim`` and ``head`` are None.

    Args:
        model: network
        probe: a few images
        head: name of its head; of several heads whose mean are the logits, their names with commas between them.
            Default: found
        finetune: whether the network is pre-trained, and learns at a tenth of the rate of its head
        reader: what gives the logits in its output
        num_classes: K where it is known, else 0
        original: the caller's module if ``model`` is a copy of it. It is called first, and both must agree
    """
    if isinstance(model, Classifier):
        called(model, probe)
        return model
    source_model = model
    if original is not None:
        source_model = unwrapped(original)
    logits, widths = inspect(source_model, as_inputs_of(source_model, probe), reader, head, num_classes)
    if original is not None:
        require_true_copy(source_model, model, as_inputs_of(model, probe), reader, logits)
    return _NetworkClassifier(model, logits.shape[1], widths, finetune, reader, preprocessing_of(model))
