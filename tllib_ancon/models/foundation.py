"""Models of transformers and open_clip: by name with a head of their own, and what their processors do to images."""

import logging
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, NoReturn
from unittest.mock import patch

import numpy as np
import torch
from huggingface_hub import constants
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from tllib_ancon.data.transforms import KEEP_RATIO, Preprocessing, evaluation_transform
from tllib_ancon.runtime.errors import UserError, one_line, unknown_name

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
        self.weight = nn.Parameter(functional.normalize(text_embeddings.detach(), dim=1))
        self.register_buffer("logit_scale", torch.as_tensor(logit_scale).detach().to(self.weight, copy=True))

    def forward(self, features: Tensor) -> Tensor:
        return self.logit_scale * functional.normalize(features, dim=1) @ functional.normalize(self.weight, dim=1).T


def is_processor(transform: object) -> bool:
    """Whether it is an image processor of transformers, or a processor that has one."""
    return hasattr(transform, "image_mean") or hasattr(transform, "image_processor")


def preprocessing_of_processor(processor: Any) -> Preprocessing:
    """What an image processor of transformers does to evaluated images. An image of noise finds its sizes, as each
    class decides in its own way how to resize and crop."""
    processor = getattr(processor, "image_processor", processor)
    kind, given = type(processor).__name__, getattr(processor, "size", None) or {}
    side = given.get("shortest_edge") or given.get("height")
    advice = "pass `train_transform` and `evaluation_transform` as functions, image -> tensor (C, H, W)"
    if not side:
        raise UserError(f"{kind} has no size with shortest_edge or height; {advice}")
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (2 * side // 3, side, 3), dtype=np.uint8))
    try:
        expected = processor(noise, return_tensors="pt")["pixel_values"][0]
    except Exception as error:  # of a library's own code
        raise UserError(f"{kind} cannot be applied to an RGB image ({one_line(error)}); {advice}") from error
    size, resample = expected.shape[-1], int(processor.resample)
    scale = 255 * processor.rescale_factor if processor.do_rescale else 255.0  # of [0, 1] to what is normalised
    mean, std = (processor.image_mean, processor.image_std) if processor.do_normalize else ((0.0,) * 3, (1.0,) * 3)
    mean, std = (tuple(value / scale for value in values) for values in (mean, std))
    for resized in (side, int(side / (getattr(processor, "crop_pct", None) or 224 / 256))):
        for name in (KEEP_RATIO, "default"):
            known = Preprocessing(mean, std, size, size / resized, name, resample=resample, floor_crop=True)
            prepared = evaluation_transform(known)(noise)
            if prepared.shape == expected.shape and float((prepared - expected).abs().mean()) * min(std) * 255 < LEVELS:
                return known
    raise UserError(f"{kind} does more than to resize, crop and normalise images; {advice}")


def preprocessing_of_transformers(model: Any) -> Preprocessing | None:
    """Preprocessing of the processor in the model's folder or the hub's cache, else of this kind, else None."""
    from transformers import IMAGE_PROCESSOR_MAPPING, AutoImageProcessor

    config = model.config
    try:
        return preprocessing_of_processor(
            AutoImageProcessor.from_pretrained(config._name_or_path, local_files_only=True, trust_remote_code=False)
        )
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


class ZeroShotClassifier(nn.Sequential):
    """The image side of a model of open_clip and as its ``head`` the texts of the classes. ``options`` are those of
    open_clip's configuration and ``num_classes``; weights are random."""

    def __init__(self, **options: Any):
        import open_clip

        vision = {**options["vision_cfg"], "timm_model_pretrained": False}
        unused = open_clip.CLIPTextCfg(context_length=1, vocab_size=1, width=8, heads=1, layers=1)
        whole = open_clip.CLIP(options["embed_dim"], vision, unused, options["quick_gelu"])
        head = CosineHead(torch.ones(options["num_classes"], options["embed_dim"]))
        super().__init__(OrderedDict(visual=whole.visual, head=head))
        self.options = options


def load_named(
    arch: str, classes: list[str] | None, prompts: int | None = None, allow_download: bool = False
) -> tuple[nn.Module, list[str] | None]:
    """Load the network of ``hf:NAME`` or ``open_clip:NAME``, images -> logits, with its weights and the names of its
    classes, if known. NAME is a folder, a name on the hub or a model with a tag or file of weights."""
    library, _, name = arch.partition(":")
    try:
        with _hub(allow_download):
            if library == "hf":
                network, known = _image_classifier(name)
                return network, classes or known
            if library != "open_clip":
                raise unknown_name("library of an architecture", f"{library}:", ("hf:", "open_clip:"))
            if classes is None:
                raise UserError(f"`arch` {arch} needs the names of the classes; pass a file of them as `class_names`")
            return _zero_shot(name, classes, prompts), classes
    except UserError:
        raise
    except ImportError as error:
        raise UserError(f"`arch` {arch} needs {error.name}: pip install 'tllib-ancon[foundation]'") from error
    except Exception as error:  # of files, of the cache and of networks, of any kind
        here = allow_download or os.path.exists(name) or os.path.isfile(name.partition("/")[2])
        where, advice = "", "; load the model in Python and pass it to tllib_ancon.adapt"
        if not here:
            where, advice = " from the hub's cache", "; `allow_download=True` asks the hub for it"
        raise UserError(f"`arch` {arch} cannot be loaded{where} ({one_line(error)}){advice}") from error


@contextmanager
def _hub(allow_download: bool) -> Iterator[None]:
    """In this context nothing is downloaded unless it is allowed, and no code of a model's folder runs."""
    offline, silenced = constants.HF_HUB_OFFLINE or not allow_download, logging.root.manager.disable
    logging.disable()
    try:
        with (
            patch.object(constants, "HF_HUB_OFFLINE", offline),
            # 0: never ask the user; open_clip has no trust_remote_code
            patch.multiple(
                "transformers.dynamic_module_utils", TIME_OUT_REMOTE_CODE=0, get_cached_module_file=_no_code
            ),
        ):
            yield
    finally:
        logging.disable(silenced)


def _no_code(folder: str, file: str, **_: object) -> NoReturn:
    raise UserError(f"{file} of {folder} is code, which tllib-ancon does not run; load the model in Python")


def _image_classifier(name: str) -> tuple[nn.Module, list[str] | None]:
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    model, loaded = AutoModelForImageClassification.from_pretrained(
        name, output_loading_info=True, dtype=torch.float32, trust_remote_code=False
    )
    if missing := sorted(loaded["missing_keys"]):
        raise UserError(
            f"hf:{name} holds no image classifier: it has no {missing[0]}; name a model for image classification"
        )
    try:
        processor = AutoImageProcessor.from_pretrained(name, trust_remote_code=False)
        model.preprocessing = preprocessing_of_processor(processor)
    except UserError as error:
        why = str(error).partition(";")[0].replace("`", "")
        raise UserError(f"hf:{name}: {why}; adapt it in Python, with transforms of your own") from error
    except OSError:  # there is none; ``preprocessing_of`` assumes one
        pass
    names = [str(text) for _, text in sorted(model.config.id2label.items())]
    numbers = [f"LABEL_{number}" for number in range(len(names))]
    return model, None if names == numbers else names


def _zero_shot(name: str, classes: Sequence[str], prompts: int | None) -> nn.Module:
    import open_clip

    full, _, weights = name.partition("/")
    if os.path.isdir(name):
        full, weights = f"local-dir:{name}", ""
    elif full in open_clip.list_models():
        tags = open_clip.list_pretrained_tags_by_model(full)
        if weights not in tags and not os.path.isfile(weights):
            raise unknown_name(f"file or tag of weights of {full}", weights, tags)
    elif not weights or os.path.isfile(weights):
        raise unknown_name("model of open_clip", full, open_clip.list_models())
    else:
        full, weights = f"hf-hub:{name}", ""
    device = "cuda" if torch.cuda.is_available() else "cpu"  # 80 texts a class take their time
    model = open_clip.create_model(full, weights or None, device=device, require_pretrained=True).eval()
    by_number: dict[int | None, Any] = {7: open_clip.SIMPLE_IMAGENET_TEMPLATES, 80: open_clip.OPENAI_IMAGENET_TEMPLATES}
    texts, templates = [text.replace("_", " ") for text in classes], by_number.get(prompts, ["a photo of a {}."])
    embeddings = open_clip.build_zero_shot_classifier(
        model, open_clip.get_tokenizer(full), texts, templates, device=device
    )
    config = {"quick_gelu": False, **open_clip.get_model_config(full)}
    own = {option: config[option] for option in ("embed_dim", "vision_cfg", "quick_gelu")}
    network = ZeroShotClassifier(**own, num_classes=len(classes))
    network.visual = model.visual
    network.head = CosineHead(embeddings.T.contiguous(), float(model.logit_scale.detach().exp()))
    return network.cpu()
