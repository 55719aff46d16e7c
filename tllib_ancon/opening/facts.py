"""What defaults depend on, besides the settings of the user: facts about the model, its images and earlier runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from torch import Tensor, nn

from tllib_ancon.data.image_files import CHANNELS
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.layouts import default_resizing
from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.models.classifier import BATCH_NORMS
from tllib_ancon.opening.transforms import UNDECIDED, StageConfig, TransformRule
from tllib_ancon.runtime.types import Options

SAMPLED = 16
"""Tensors whose values are looked at."""


class _TrainedModel(Protocol):
    """What defaults depend on in a :class:`~tllib_ancon.opening.source.Source`, which they also help to load."""

    @property
    def checkpoint(self) -> str: ...

    @property
    def is_whole(self) -> bool: ...

    @property
    def recorded_settings(self) -> Options: ...


@dataclass(frozen=True)
class _NetworkFacts:
    """What defaults depend on in a loaded network."""

    normalises_by_layer: bool = False  # alone, as transformers
    is_partly_frozen: bool = False

    @classmethod
    def of(cls, network: nn.Module) -> _NetworkFacts:
        return cls(
            normalises_by_layer=_normalises_by_layer_alone(network),
            is_partly_frozen=not all(parameter.requires_grad for parameter in network.parameters()),
        )


@dataclass(frozen=True)
class ImageFacts:
    """What defaults depend on in the images of a run."""

    count: int = 0
    side: int | None = None  # in pixels, of images in memory that are squares
    preprocessing: Preprocessing | None = None  # of the network, or of the processor that the user passes
    are_fixed: bool = True  # tensors, or images with a transform of the user or a processor
    are_mirrored: bool = False  # training sees the tensors of evaluation and their mirrors
    resizing: str = ""  # of this layout of data
    tensor_range: tuple[float, float] | None = None  # least and largest value in a sample of tensors (1 or 3, H, W)


NOT_OPENED = ImageFacts()
"""Of images that are not opened yet: no setting of theirs is filled in."""


@dataclass(frozen=True)
class Facts:
    """What defaults depend on, besides the settings of the user.

    Attributes:
        recorded_settings: ``config.json`` of the run that continues; empty for a new one
        source_settings: ``config.json`` of the run that trained the source model
        checkpoint: of the source model; empty for a module of the caller
        is_whole: whether the source model is a whole network, which no setting builds
        network: before it is loaded those of a usual one
        images: before they are opened :data:`NOT_OPENED`
    """

    recorded_settings: Options = field(default_factory=dict)
    source_settings: Options = field(default_factory=dict)
    checkpoint: str = ""
    is_whole: bool = False
    network: _NetworkFacts = _NetworkFacts()
    images: ImageFacts = NOT_OPENED


def facts_of(
    config: StageConfig,
    source: _TrainedModel,
    network: nn.Module | None = None,
    images: ImageSource | None = None,
    transforms: TransformRule = UNDECIDED,
    recorded_settings: Options = MappingProxyType({}),
) -> Facts:
    """The facts of a run.

    Args:
        config: settings of the user
        source: trained model, whose run decides how its images are prepared
        network: loaded network. Default: what depends on it is filled in as for a usual one
        images: images of the run. Default: their settings are left out
        transforms: what decides how the images become tensors
        recorded_settings: ``config.json`` of the run that continues
    """
    network_facts = _NetworkFacts()
    if network is not None:
        network_facts = _NetworkFacts.of(network)
    image_facts = NOT_OPENED
    if images is not None:
        tensor_range = None
        if transforms.evaluation is None:
            tensor_range = _range_of_tensors(images)
        image_facts = ImageFacts(
            count=len(images),
            side=images.reader.side,
            preprocessing=transforms.preprocessing,
            are_fixed=transforms.are_fixed_for(images),
            are_mirrored=transforms.mirrors(images),
            resizing=default_resizing(config.data),
            tensor_range=tensor_range,
        )
    return Facts(
        recorded_settings=recorded_settings,
        source_settings=source.recorded_settings,
        checkpoint=source.checkpoint,
        is_whole=source.is_whole,
        network=network_facts,
        images=image_facts,
    )


def _normalises_by_layer_alone(model: nn.Module) -> bool:
    """Whether a network has layer-norm and no batch-norm, as transformers and ConvNeXt: what AdamW trains best."""
    modules = [*model.modules()]
    has_layer_norm = any(isinstance(module, nn.LayerNorm) for module in modules)
    has_batch_norm = any(isinstance(module, BATCH_NORMS) for module in modules)
    return has_layer_norm and not has_batch_norm


def _range_of_tensors(images: ImageSource) -> tuple[float, float] | None:
    """The least and largest value in a sample of tensors that are images (1 or 3, H, W); None for all else."""
    if not images.is_raw:
        return None
    sample: list[Any] = [images.image(index) for index in range(min(len(images), SAMPLED))]
    for row in sample:
        if not isinstance(row, Tensor) or row.ndim != 3 or row.shape[0] not in CHANNELS:
            return None
    least = min(float(row.min()) for row in sample)
    most = max(float(row.max()) for row in sample)
    return least, most
