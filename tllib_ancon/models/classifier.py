"""What is trained and adapted: a network that gives logits and features.

TLLib's is backbone, bottleneck and head; any other is a whole network whose head is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from tllib_ancon.data.batches import Batch, num_rows, to_device
from tllib_ancon.data.transforms import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from tllib_ancon.models.entering import normalisation_before
from tllib_ancon.models.foundation import preprocessing_of_open_clip, preprocessing_of_transformers
from tllib_ancon.models.outputs import (
    LogitsReader,
    OtherOutput,
    described,
    find_logits,
    observe,
    output_for,
    takes_pixel_values,
    two_logits,
)
from tllib_ancon.models.pooling import AveragePool
from tllib_ancon.runtime.errors import UserError, unknown_name

FOLDED = 16
"""Channels from which a first convolution takes blocks of pixels rather than images."""

BATCH_NORMS = nn.modules.batchnorm._BatchNorm


def preprocessing_of(network: nn.Module) -> Preprocessing | None:
    """What a classifier of this package, timm, transformers, open_clip or torchvision say about a network of theirs or
    one that holds it, else None."""
    own = getattr(network, "preprocessing", None)
    if isinstance(own, Preprocessing) or isinstance(network, Classifier):
        return own
    for part in network.modules():
        if known := _preprocessing_of_part(part):
            is_changed = part is not network or bool(network._forward_pre_hooks)
            return _as_it_enters(known, network, part) if is_changed else known
    if type(network).__module__.startswith("torchvision.models."):
        return Preprocessing(IMAGENET_MEAN, IMAGENET_STD, getattr(network, "image_size", 224))
    return None


def _preprocessing_of_part(part: nn.Module) -> Preprocessing | None:
    """What the metadata of this module say, of timm, open_clip or transformers."""
    if metadata := getattr(part, "pretrained_cfg", None):
        built_for = (getattr(module, "img_size", None) for module in part.modules())
        side = next((size[-1] for size in built_for if isinstance(size, tuple)), metadata["input_size"][-1])
        mean, std = tuple(metadata["mean"]), tuple(metadata["std"])
        known = Preprocessing(mean, std, side, metadata.get("crop_pct") or 0.875)
        if channels_of(part) == 1 < len(mean):
            mean, std = (sum(mean) / len(mean),), (sum(std) / len(std),)
            line = f"the network takes one channel; assumed: mean {mean[0]:.3f}, std {std[0]:.3f}, the average over RGB"
            known = replace(known, mean=mean, std=std, assumed=f"{line}; `norm_mean` and `norm_std` change it")
        return known
    if settings := getattr(part, "preprocess_cfg", None):
        return preprocessing_of_open_clip(settings)
    return preprocessing_of_transformers(part) if takes_pixel_values(part) else None


def _as_it_enters(known: Preprocessing, network: nn.Module, part: nn.Module) -> Preprocessing | None:
    """The preprocessing of a part for the network that holds it; None where the network changes images in a way that is
    no normalisation."""
    name, channels = type(part).__name__, channels_of(part) or len(known.mean)
    normalisation = normalisation_before(network, part, channels, known.image_size or 224)
    if normalisation is None:
        return None
    change = "`norm_mean` and `norm_std` change it"
    if normalisation.is_identity:
        line = f"the preprocessing is that of {name} in the model, which images enter unchanged; {change}"
        return replace(known, assumed=known.assumed or line)
    mean, std = (tuple(round(value, 4) for value in values) for values in normalisation)
    levels = normalisation.levels
    line = (
        f"the model normalises images itself (mean {mean}, std {std}); they are not normalised before and reach it in "
        f"[0, {levels:.0f}]; {change}"
    )
    unchanged = (0.0,) * channels
    return replace(known, mean=unchanged, std=(1 / levels,) * channels, assumed=line)


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

    def predict(self, images: Any) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def forward(self, images: Batch | None = None, /, **arrays: Tensor) -> tuple[Tensor, Tensor] | Tensor:
        logits, features = self.predict(arrays if images is None else images)
        return (logits, features) if self.training else logits

    def get_parameters(self, base_lr: float = 1.0) -> list[dict[str, Any]]:
        """Groups of the parameters that learn, with TLLib's rates: 0.1 for a pre-trained backbone, else 1."""
        parts = [part for part in (getattr(self, "bottleneck", None), self.head) if part is not None]
        new = [[parameter for parameter in part.parameters() if parameter.requires_grad] for part in parts]
        known = set(chain(*new))
        backbone = [parameter for parameter in self.parameters() if parameter.requires_grad and parameter not in known]
        groups = [(backbone, 0.1 if self.finetune else 1.0), *((part, 1.0) for part in new)]
        return [{"params": part, "lr": rate * base_lr} for part, rate in groups if part]

    def drop_features(self, probability: float) -> None:
        """Add dropout with this probability after the bottleneck; the state dict stays the same."""
        layers = getattr(self, "bottleneck", None)
        if not isinstance(layers, nn.Sequential) or isinstance(layers[-1], nn.Dropout):
            missing = "this model has no bottleneck without dropout"
            raise UserError(f"`bottleneck_dropout={probability:g}`: {missing}; leave it out")
        self.bottleneck = nn.Sequential(*layers, nn.Dropout(probability))


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
        self.backbone, self.bottleneck, self.head = backbone, bottleneck, head
        self.pool_layer = AveragePool() if pool else nn.Identity()
        self.num_classes, self.features_dim, self.finetune = num_classes, features_dim, finetune
        self.preprocessing = preprocessing_of(backbone)

    def predict(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.bottleneck(self.pool_layer(self.backbone(images)))
        return self.head(features), features


class NetworkClassifier(Classifier):
    """A whole network, whose state dict this has, and its head: a module by its dotted name or, of several whose mean
    are the logits, their names with commas. ``widths`` are D of each. The head has a forward hook while this object
    lives."""

    head_name: str | None

    def __init__(
        self,
        network: nn.Module,
        num_classes: int,
        heads: Sequence[str],
        widths: Sequence[int],
        finetune: bool,
        reader: LogitsReader,
    ):
        super().__init__()
        self.network, self.num_classes, self.finetune = network, num_classes, finetune
        self.reader = reader
        self.widths = [*widths]
        self.head_name = ",".join(heads) or None
        self.features_dim = sum(widths) or None
        self.preprocessing = preprocessing_of(network)
        self._entered = [_HeadInput() for _ in heads]
        self._hooks = [
            network.get_submodule(name).register_forward_pre_hook(entered)
            for name, entered in zip(heads, self._entered, strict=True)
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
        heads = [self.network.get_submodule(name) for name in self.head_name.split(",")]
        has_one_logit = getattr(heads[0], "out_features", 0) == 1
        on_vectors = [_on_vectors(head) for head in heads]
        head = on_vectors[0] if len(heads) == 1 else MeanOfHeads(on_vectors, self.widths)
        return nn.Sequential(head, TwoLogits()) if has_one_logit else head

    def predict(self, images: Batch) -> tuple[Tensor, Tensor]:
        logits = self.reader(output_for(self.network, images))
        features = [entered.take() for entered in self._entered]
        if not isinstance(logits, Tensor):
            raise UserError(f"the model gives {described(logits)} in this mode where logits (B, K) are expected")
        entering = [part for part in features if part is not None]
        if not entering or len(entering) < len(features):
            return logits, logits.new_empty(len(logits), 0)
        return logits, entering[0] if len(entering) == 1 else torch.cat(entering, 1)

    def state_dict(self, *args: Any, **options: Any) -> Any:
        return self.network.state_dict(*args, **options)

    def load_state_dict(self, *args: Any, **options: Any) -> Any:
        return self.network.load_state_dict(*args, **options)


class _HeadInput:
    """A feature hook: it holds what entered the head last. A copy holds nothing."""

    features: Tensor | None = None

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.features = inputs[0].flatten(1)

    def take(self) -> Tensor | None:
        features, self.features = self.features, None
        return features

    def __reduce__(self) -> tuple[type[_HeadInput], tuple[()]]:
        return _HeadInput, ()


class MeanOfHeads(nn.Module):
    """Features of several heads side by side, (B, D_1 + D_2 + …) -> mean of their logits (B, K)."""

    def __init__(self, heads: Sequence[nn.Module], widths: Sequence[int]):
        super().__init__()
        self.heads, self.widths = nn.ModuleList(heads), [*widths]

    def forward(self, features: Tensor) -> Tensor:
        parts = torch.split(features, self.widths, 1)
        return torch.stack([head(part) for head, part in zip(self.heads, parts, strict=True)]).mean(0)


class TwoLogits(nn.Module):
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
    modules = dict(model.named_modules())
    names = [] if head is None else head.split(",")
    for name in names:
        if name not in modules:
            raise unknown_name("module of the model", name, modules)
    images = probe_images(model) if probe is None else to_device(probe, device_of(model))
    advice = "" if probe is not None else "; give a few images that it takes, as the argument probe"
    observed = observe(model, images, names or None, advice)
    if reader is None:
        reader = find_logits(model, images, observed, names)
    logits = reader(observed.output)
    count = num_rows(images)
    fits = isinstance(logits, Tensor) and logits.ndim == 2 and len(logits) == count and logits.numel()
    if not (fits and logits.is_floating_point()):
        raise OtherOutput(
            f"{no_logits(logits, count)}. In Python `method=adabn` takes any output, and `method=tent` logits "
            "(B, K, H, W), without `log`"
        )
    for name in names:
        if name not in observed.calls:
            raise UserError(f"the model does not call its module {name} on (B, D); `head` must name one after pooling")
    heads = names or observed.heads(logits)
    widths = [observed.calls[name][0].shape[1] for name in heads]
    return NetworkClassifier(model, logits.shape[1], heads, widths, finetune, reader)


def no_logits(output: Any, count: int) -> str:
    """The message about an output for this number of images that is no logits (B, K)."""
    return (
        f"the model gives {described(output)} for {count} images where logits ({count}, K) are expected; wrap it in a "
        "module that returns these, of one logit (B, 1)"
    )


def require_network(model: object, learns: bool = False) -> nn.Module:
    """Return the model if it is a network with weights, with ``learns`` a trainable one."""
    if not isinstance(model, nn.Module):
        raise UserError(
            f"`model` must be a torch.nn.Module, a checkpoint or a run directory, not of type {type(model).__name__}; "
            "of a state dict pass the network that has loaded it, of a function the network that it makes"
        )
    if any(tensor.is_meta for tensor in chain(model.parameters(), model.buffers())):
        raise UserError("the model has weights on the device meta, shapes without values; load them first")
    if hasattr(model, "encode_image") or hasattr(model, "get_image_features"):
        raise UserError(
            "the model gives embeddings of images and texts, no logits: pass its image tower followed by "
            "tllib_ancon.models.CosineHead(embeddings of the classes' texts); docs/own_model.md shows how"
        )
    if learns and isinstance(model, torch.jit.ScriptModule):
        raise UserError("a TorchScript program does not learn; pass the torch.nn.Module that it was made from")
    integers = {str(weight.dtype) for weight in model.parameters() if not weight.is_floating_point()}
    integers |= {type(part).__qualname__ for part in model.modules() if ".quantized" in type(part).__module__}
    integers |= {name for name in ("quantization_method", "is_quantized") if getattr(model, name, None)}
    if learns and integers:
        raise UserError(
            f"the model is quantised ({', '.join(sorted(integers))}): its integers have no gradient; adapt it as it "
            "was before, and quantise what comes back"
        )
    return model


def device_of(model: nn.Module) -> torch.device:
    """Where the weights of a model lie; the CPU without any."""
    return next(model.parameters(), torch.empty(0)).device


def probe_images(model: nn.Module) -> Tensor:
    """Two black images of the size and channels that the network's metadata tell, else of 224 pixels in RGB."""
    known = preprocessing_of(model)
    side = known.image_size if known and known.image_size else 224
    parameter = next(model.parameters(), torch.empty(0))
    channels = channels_of(model) or (len(known.mean) if known else 3)
    return parameter.new_zeros(2, channels, side, side)


def channels_of(network: nn.Module) -> int | None:
    """Channels of the images of a network of timm or torchvision, by its first convolution; None for others, and for a
    network that folds pixels into channels first."""
    is_of_zoo = type(network).__module__.startswith("torchvision.models.") or hasattr(network, "pretrained_cfg")
    convolutions = (part.in_channels for part in network.modules() if isinstance(part, nn.Conv2d))
    channels = next(convolutions, None) if is_of_zoo else None
    return channels if channels is not None and channels < FOLDED else None


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
    bottleneck, head = nn.Sequential(linear, batch_norm), nn.Linear(bottleneck_dim, num_classes)
    nn.init.xavier_normal_(head.weight)
    nn.init.zeros_(head.bias)
    model = BottleneckClassifier(backbone, num_classes, bottleneck, weight_norm(head), bottleneck_dim, pool, finetune)
    if dropout:
        model.drop_features(dropout)
    return model


def normalises_by_layer_alone(model: nn.Module) -> bool:
    """Whether a network has layer-norm and no batch-norm, as transformers and ConvNeXt: what AdamW trains best."""
    kinds = nn.LayerNorm, BATCH_NORMS
    by_layer, by_batch = (any(isinstance(one, kind) for one in model.modules()) for kind in kinds)
    return by_layer and not by_batch


def choose_adapted_parameters(model: Classifier, which: str) -> int:
    """Choose the parameters to train; returns how many of them were frozen. ``all-but-head`` is SHOT's and AnCon's
    choice, ``norm-affine`` scale and shift of the normalisation layers (Rusak et al., 2022)."""
    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
    if which != "as-given":
        model.requires_grad_(which != "norm-affine")
    if which == "all-but-head" and model.head is not None:
        model.head.requires_grad_(False)
    elif which == "norm-affine":
        for module in model.modules():
            if isinstance(module, BATCH_NORMS | nn.GroupNorm | nn.LayerNorm):
                module.requires_grad_(True)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        advice = "pass another `adapted`"
        if which == "all-but-head":
            advice = "the head has all of its parameters; pass `adapted=all`"
        if any(hasattr(module, "peft_config") for module in model.modules()):
            advice = "its adapters are frozen, as PEFT loads them; load them with is_trainable=True"
        elif which == "as-given":
            advice = "all are frozen; let parameters require gradients, or pass `adapted=all-but-head`"
        raise UserError(f"the model has no parameter to train with `adapted={which}`: {advice}")
    return sum(parameter.requires_grad for parameter in frozen)
