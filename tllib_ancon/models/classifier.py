"""What is trained and adapted: a network that gives logits and features.

TLLib's is backbone, bottleneck and head; any other is a whole network whose head is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.data.batches import Batch, num_rows, to_device
from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.models.calling import SHAPE, output_for
from tllib_ancon.models.logits import find_logits
from tllib_ancon.models.observation import observe
from tllib_ancon.models.outputs import LogitsReader, OtherOutput, described, two_logits
from tllib_ancon.models.preprocessing import preprocessing_of, probe_images
from tllib_ancon.runtime.errors import BadModel, BadSetting, named, unknown_name

ParameterGroups = list[dict[str, Any]]
"""Parameters with their learning rates, as an optimiser takes them."""

LogitsAndFeatures = tuple[Tensor, Tensor]
"""(B, K) and (B, D)."""

BATCH_NORMS = nn.modules.batchnorm._BatchNorm


class Classifier(nn.Module):
    """Images (B, C, H, W) -> logits (B, K) and features (B, D), with the interface of TLLib's classifiers.

    :meth:`predict` gives both in any mode. Calling the module does so in training mode, and gives logits alone in
    evaluation mode, as TLLib's utilities expect. Several arrays enter by name, as one dict or as keywords.
    """

    num_classes: int  # K
    features_dim: int | None  # D; None if the network has no features, which are then (B, 0)
    bottleneck: nn.Module
    head: nn.Module | None  # features (B, D) -> logits (B, K), a part of this module
    finetune: bool  # the network is pre-trained and learns at a tenth of the rate of its new layers
    preprocessing: Preprocessing | None = None  # what its images should be like, where that is known
    head_name: str | None = "head"  # the head's name in the network; None for a network without one
    reader: LogitsReader = LogitsReader()  # finds the logits in what the network returns

    def release(self) -> nn.Module:
        """The network of the caller, without hooks; a classifier of TLLib's parts is its own network."""
        return self

    def predict(self, images: Any) -> LogitsAndFeatures:
        raise NotImplementedError

    def forward(self, images: Batch | None = None, /, **arrays: Tensor) -> LogitsAndFeatures | Tensor:
        logits, features = self.predict(arrays if images is None else images)
        if self.training:
            return logits, features
        return logits

    def get_parameters(self, base_lr: float = 1.0) -> ParameterGroups:
        """Groups of the parameters that learn, with TLLib's rates: 0.1 for a pre-trained backbone, else 1."""
        new_parts = [getattr(self, "bottleneck", None), self.head]
        new_groups = [trainable(part) for part in new_parts if part is not None]
        new_parameters = set(chain.from_iterable(new_groups))
        backbone = [parameter for parameter in trainable(self) if parameter not in new_parameters]
        backbone_rate = 0.1 * base_lr if self.finetune else base_lr
        groups = [{"params": backbone, "lr": backbone_rate}]
        groups += [{"params": parameters, "lr": base_lr} for parameters in new_groups]
        return [group for group in groups if group["params"]]

    def drop_features(self, probability: float) -> None:
        """Add dropout with this probability after the bottleneck; the state dict stays the same."""
        layers: Any = self.bottleneck
        self.bottleneck = nn.Sequential(*layers, nn.Dropout(probability))


def trainable(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


class NetworkClassifier(Classifier):
    """A whole network, whose state dict and names of parameters this has, and its head, a module by its dotted name.

    If the logits are the mean of several heads, their names have commas between them. ``widths`` are D of each. The
    head has a forward hook while this object lives.
    """

    def __init__(
        self,
        network: nn.Module,
        num_classes: int,
        heads: Sequence[str],
        widths: Sequence[int],
        finetune: bool,
        reader: LogitsReader,
        preprocessing: Preprocessing | None,
    ):
        super().__init__()
        self.network = network
        self.num_classes = num_classes
        self.finetune = finetune
        self.reader = reader
        self.preprocessing = preprocessing
        self.widths = [*widths]
        self.head_name = ",".join(heads) or None
        self.features_dim = sum(widths) or None
        self._head_inputs = [_HeadInput() for _ in heads]
        self._hooks = [
            network.get_submodule(name).register_forward_pre_hook(head_input)
            for name, head_input in zip(heads, self._head_inputs, strict=True)
        ]

    def release(self) -> nn.Module:
        """The network, without the hook; this object finds its features no more."""
        for hook in self.__dict__.get("_hooks", ()):
            hook.remove()
        return self.network

    def __del__(self) -> None:
        self.release()

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

    def predict(self, images: Batch) -> LogitsAndFeatures:
        logits = self.reader(output_for(self.network, images))
        head_inputs = [head_input.take() for head_input in self._head_inputs]
        if not isinstance(logits, Tensor):
            raise BadModel(f"the model gives {described(logits)} in this mode where logits (B, K) are expected")
        features = [features for features in head_inputs if features is not None]
        if not features or len(features) < len(head_inputs):
            return logits, logits.new_empty(len(logits), 0)
        if len(features) == 1:
            return logits, features[0]
        return logits, torch.cat(features, 1)

    def state_dict(self, *args: Any, **options: Any) -> Any:
        return self.network.state_dict(*args, **options)

    def load_state_dict(self, *args: Any, **options: Any) -> Any:
        return self.network.load_state_dict(*args, **options)

    def named_parameters(self, *args: Any, **options: Any) -> Any:
        return self.network.named_parameters(*args, **options)


class _HeadInput:
    """A feature hook: it holds what entered the head last. A copy holds nothing."""

    features: Tensor | None = None

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.features = inputs[0].flatten(1)

    def take(self) -> Tensor | None:
        features = self.features
        self.features = None
        return features

    def __reduce__(self) -> tuple[type[_HeadInput], tuple[()]]:
        return _HeadInput, ()


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
        return two_logits(logits)


def _on_vectors(head: nn.Module) -> nn.Module:
    """A head for features (B, D), which a convolution takes as (B, D, 1, 1)."""
    if isinstance(head, nn.Conv2d):
        return nn.Sequential(nn.Unflatten(1, (-1, 1, 1)), head, nn.Flatten())
    return head


def as_classifier(
    model: nn.Module,
    head: str | None = None,
    probe: Batch | None = None,
    finetune: bool = True,
    reader: LogitsReader | None = None,
) -> Classifier:
    """Any network that ends in logits as a :class:`Classifier`; a classifier is returned unchanged.

    The head is the innermost module with weights that maps (B, D), or (B, D, 1, 1) for a convolution, to the logits. A
    factor and a shift of each row may follow, as of a temperature. Of logits that are the mean of several heads, all
    are the head, and their inputs side by side are the features. ``head`` names it. The features are what enters it.
    One forward pass in evaluation mode, without gradients, finds it, with the images ``probe`` or black ones. Without
    such a module ``features_dim`` and ``head`` of the result are None. ``reader`` says where the logits are in the
    output. Default: found by the same pass.
    """
    if isinstance(model, Classifier):
        return model
    names = _named_modules(model, head)
    preprocessing = preprocessing_of(model)
    if probe is None:
        images: Batch = probe_images(model, preprocessing)
        advice = "; give a few images that it takes, as the argument probe"
    else:
        images = to_device(probe, device_of(model))
        advice = SHAPE
    observed = observe(model, images, names, advice)
    if reader is None:
        logits_reader = find_logits(model, images, observed, names)
    else:
        logits_reader = reader
    logits = logits_reader(observed.output)
    _require_logits(logits, num_rows(images))
    heads = names or observed.heads(logits)
    for name in heads:
        if name not in observed.calls:
            raise BadModel(
                f"the model does not call its module {name} on (B, D)", f"{named('head')} must name one after pooling"
            )
    widths = [observed.calls[name].features.shape[1] for name in heads]
    return NetworkClassifier(model, logits.shape[1], heads, widths, finetune, logits_reader, preprocessing)


def _named_modules(model: nn.Module, head: str | None) -> list[str]:
    """The names of modules in ``head``; none without it."""
    names = head_names(head)
    modules = [name for name, _ in model.named_modules() if name]
    for name in names:
        if name not in modules:
            raise unknown_name("module of the model", name, modules)
    return names


def head_names(head: str | None) -> list[str]:
    """The names, with commas between them in the argument ``head`` of a call; none without it."""
    if head is None:
        return []
    if not isinstance(head, str):
        raise BadSetting(
            f"{named('head')} must be the dotted name of a module in the model, got {type(head).__name__}",
            setting="head",
        )
    return head.split(",")


def _require_logits(logits: Any, number: int) -> None:
    """Raise an error for an output that is no logits (B, K) of this number of images."""
    has_rows = isinstance(logits, Tensor) and logits.ndim == 2 and len(logits) == number
    if has_rows and logits.numel() and logits.is_floating_point():
        return
    raise OtherOutput(
        f"{no_logits(logits, number)}. In Python {named('method', 'adabn')} takes any output, and "
        f"{named('method', 'tent')} logits "
        f"(B, K, H, W), without {named('log')}"
    )


def no_logits(output: Any, number: int) -> str:
    """The message about an output for this number of images that is no logits (B, K)."""
    return (
        f"the model gives {described(output)} for {number} images where logits ({number}, K) are expected; wrap it in "
        "a module that returns these, of one logit (B, 1)"
    )


def device_of(model: nn.Module) -> torch.device:
    """Where the weights of a model lie; the CPU without any."""
    return next(model.parameters(), torch.empty(0)).device
