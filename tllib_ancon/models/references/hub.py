"""``hf:NAME``, an image classifier of transformers, and ``open_clip:NAME``, a zero-shot classifier of open_clip."""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn
from unittest.mock import patch

import torch
from torch import nn

from tllib_ancon.models.foundation import CosineHead, ZeroShotClassifier
from tllib_ancon.models.preprocessing import preprocessing_by_transform, preprocessing_of
from tllib_ancon.models.references.reference import ModelRef
from tllib_ancon.runtime.errors import BadModel, BadSetting, UserError, named, one_line
from tllib_ancon.runtime.extras import require

LIBRARIES = {"hf": "transformers", "open_clip": "open_clip"}
"""How the names of a library's models begin, with the library."""

ZERO_SHOT_OPTIONS = ("embed_dim", "vision_cfg", "quick_gelu")
"""Options of open_clip's configuration that determine the image side of a model."""

PROMPT = "a photo of a {}."
"""Text of a class of a zero-shot classifier."""


def load_from_hub(arch: str, class_names: list[str] | None, allow_download: bool) -> ModelRef:
    """``LIBRARY:NAME`` with its weights. NAME is a folder, on the hub, or a model with a tag or file of weights."""
    library, _, name = arch.partition(":")
    require(named("arch", arch), LIBRARIES[library], extra="foundation")
    try:
        with _hub(allow_download):
            if library == "hf":
                network = _image_classifier(name)
            else:
                network = _zero_shot(name, class_names)
    except UserError:
        raise
    except Exception as error:  # of files, of the cache and of networks, of any kind
        raise BadSetting(
            f"{named('arch')} {arch} cannot be loaded from files or the hub's cache ({one_line(error)})",
            f"load the model in Python and pass it, or {named('allow_download', True)} asks the hub for it",
            setting="arch",
        ) from error
    return ModelRef(arch, network, class_names)


@contextmanager
def _hub(allow_download: bool) -> Iterator[None]:
    """In this context nothing is downloaded unless it is allowed, and no code of a model's folder runs."""
    from huggingface_hub import constants

    offline = constants.HF_HUB_OFFLINE or not allow_download
    level_before = logging.root.manager.disable
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
        logging.disable(level_before)


def _no_code(folder: str, file: str, **_: object) -> NoReturn:
    raise BadModel(f"{file} of {folder} is code, which tllib-ancon does not run", "load the model in Python")


def _image_classifier(name: str) -> Any:
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    model, loading = AutoModelForImageClassification.from_pretrained(
        name, output_loading_info=True, dtype=torch.float32, trust_remote_code=False
    )
    if loading["missing_keys"]:
        first_missing = min(loading["missing_keys"])
        raise BadModel(
            f"hf:{name} holds no image classifier: it has no {first_missing}", "name a model for image classification"
        )
    with suppress(OSError):  # there is none
        processor = AutoImageProcessor.from_pretrained(name, trust_remote_code=False)
        model.preprocessing = preprocessing_by_transform(processor)
    return model


def _zero_shot(name: str, classes: Sequence[str] | None) -> nn.Module:
    import open_clip

    if classes is None:
        raise BadSetting(
            f"{named('arch')} open_clip:{name} needs the names of the classes",
            f"pass a file of them as {named('class_names')}",
            setting="class_names",
        )
    model_name, weights = _open_clip_source(name)
    device = "cuda" if torch.cuda.is_available() else "cpu"  # many texts take their time
    model = open_clip.create_model(model_name, weights, device=device, require_pretrained=True).eval()
    texts = [text.replace("_", " ") for text in classes]
    tokenizer = open_clip.get_tokenizer(model_name)
    embeddings = open_clip.build_zero_shot_classifier(model, tokenizer, texts, [PROMPT], device=device)
    config = {"quick_gelu": False, **open_clip.get_model_config(model_name)}
    options = {option: config[option] for option in ZERO_SHOT_OPTIONS}
    network = ZeroShotClassifier(**options, num_classes=len(classes))
    network.visual = model.visual
    network.preprocessing = preprocessing_of(model.visual)
    network.head = CosineHead(embeddings.T.contiguous(), float(model.logit_scale.detach().exp()))
    return network.cpu()


def _open_clip_source(name: str) -> tuple[str, str | None]:
    """open_clip's names of a model and its weights: of a folder, ``MODEL/TAG``, ``MODEL/FILE`` or a name on the hub."""
    import open_clip

    if os.path.isdir(name):
        return f"local-dir:{name}", None
    model_name, _, weights = name.partition("/")
    if model_name in open_clip.list_models():
        return model_name, weights
    return f"hf-hub:{name}", None
