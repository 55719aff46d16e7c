"""Models of transformers and open_clip: what their processors do to images, and the head of a zero-shot classifier."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from tllib_ancon.data.transforms import KEEP_RATIO, Preprocessing, TransformOptions, evaluation_transform
from tllib_ancon.errors import UserError, one_line

LEVELS = 1
"""Of 255, the mean over pixels: torchvision's resizing, which most processors use, rounds otherwise than Pillow's."""


class CosineHead(nn.Module):
    """The head of a zero-shot classifier: cosine similarities between images and the texts of the classes.

    .. math::
        logits = s \\frac{z}{\\|z\\|} \\frac{W^T}{\\|W\\|}

    Args:
        text_embeddings: W, (K, D), one row a class
        logit_scale: s, the factor itself: of CLIP and SigLIP ``model.logit_scale.exp()``

    Inputs: image embeddings z, (B, D), normalised or not

    Outputs: logits (B, K)

    Source: Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021, Figure 3
    """

    logit_scale: Tensor

    def __init__(self, text_embeddings: Tensor, logit_scale: float | Tensor = 100.0):
        super().__init__()
        if text_embeddings.ndim != 2:
            raise UserError(f"`text_embeddings` has shape {tuple(text_embeddings.shape)}; it must be (K, D)")
        self.out_features, self.in_features = text_embeddings.shape
        self.weight = nn.Parameter(functional.normalize(text_embeddings.detach().clone(), dim=1))
        self.register_buffer("logit_scale", torch.as_tensor(logit_scale).detach().to(self.weight, copy=True))

    def forward(self, features: Tensor) -> Tensor:
        return self.logit_scale * functional.normalize(features, dim=1) @ functional.normalize(self.weight, dim=1).T


def is_processor(transform: object) -> bool:
    """Whether it is an image processor of transformers, or a processor that has one."""
    return hasattr(transform, "image_mean") or hasattr(transform, "image_processor")


def preprocessing_of_processor(processor: Any) -> Preprocessing:
    """What an image processor of transformers does to evaluated images, read from its settings.

    Its sizes are found by an image of noise, as each class decides in its own way how to resize and crop.

    Args:
        processor: an image processor, or a processor of text and images, which has one

    Raises:
        UserError: a processor without sizes, or one that does what this package's transforms do not
    """
    processor = getattr(processor, "image_processor", processor)
    kind, given = type(processor).__name__, getattr(processor, "size", None) or {}
    side = given.get("shortest_edge") or given.get("height")
    advice = "pass `train_transform` and `evaluation_transform` as functions, image -> tensor (C, H, W)"
    if not side:
        raise UserError(f"{kind} has no `size` with `shortest_edge` or `height`; {advice}")
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (2 * side // 3, side, 3), dtype=np.uint8))
    try:
        expected = processor(noise, return_tensors="pt")["pixel_values"][0]
    except Exception as error:  # of a library's own code
        raise UserError(f"{kind} cannot be applied to an RGB image ({one_line(error)}); {advice}") from error
    scale = 255 * processor.rescale_factor if processor.do_rescale else 255.0  # of [0, 1] to what is normalised
    mean, std = (processor.image_mean, processor.image_std) if processor.do_normalize else ((0.0,) * 3, (1.0,) * 3)
    mean, std = (tuple(value / scale for value in values) for values in (mean, std))
    for resized in (side, int(side / (getattr(processor, "crop_pct", None) or 224 / 256))):
        for name in (KEEP_RATIO, "default"):
            sizes = {"image_size": expected.shape[-1], "crop_fraction": expected.shape[-1] / resized}
            shared = {**sizes, "val_resizing": name, "resample": int(processor.resample), "floor_crop": True}
            found = evaluation_transform(TransformOptions(norm_mean=mean, norm_std=std, **shared))(noise)
            if found.shape == expected.shape and float((found - expected).abs().mean()) * min(std) * 255 < LEVELS:
                return Preprocessing(mean, std, **shared)
    raise UserError(f"{kind} does more than to resize, crop and normalise images; {advice}")


def preprocessing_of_transformers(model: Any) -> Preprocessing | None:
    """Preprocessing of the processor in the model's folder or in the hub's cache. Default: that of this kind of model,
    at the model's size. None if that does something else."""
    from transformers import IMAGE_PROCESSOR_MAPPING, AutoImageProcessor

    config = model.config
    try:
        options = {"local_files_only": True, "trust_remote_code": False}
        return preprocessing_of_processor(AutoImageProcessor.from_pretrained(config._name_or_path, **options))
    except UserError:
        return None
    except (OSError, ValueError):
        kinds = IMAGE_PROCESSOR_MAPPING.get(type(config), {})  # by backend
    for kind in kinds.values():
        with suppress(UserError):
            known = preprocessing_of_processor(kind())
            size = getattr(getattr(config, "vision_config", config), "image_size", None)
            side = size if isinstance(size, int) else known.image_size
            line = (
                f"no processor of this {type(model).__name__} is on this machine; assumed: {kind.__name__}'s defaults "
                f"at {side} pixels (mean {known.mean}, std {known.std}); else pass `evaluation_transform=processor`"
            )
            return replace(known, image_size=side, assumed=line)
    return None


def preprocessing_of_open_clip(config: Mapping[str, Any]) -> Preprocessing:
    """What open_clip's transform of evaluated images does: its ``preprocess_cfg``, an attribute of the image tower."""
    size, resizing = config["size"], {"shortest": KEEP_RATIO, "squash": "default"}.get(config["resize_mode"])
    side = size if isinstance(size, int) else size[-1]
    resample = Image.Resampling[config["interpolation"].upper()]
    return Preprocessing(tuple(config["mean"]), tuple(config["std"]), side, 1.0, resizing, resample=resample)
