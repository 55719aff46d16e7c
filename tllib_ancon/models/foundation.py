"""Models of transformers and open_clip by name, with a head of their own."""

import logging
import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn import functional

from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.models.class_names import class_names_of
from tllib_ancon.models.preprocessing import preprocessing_of, preprocessing_of_processor
from tllib_ancon.runtime.errors import BadModel, BadSetting, UserError, named, one_line, unknown_name
from tllib_ancon.runtime.extras import require

ZERO_SHOT_OPTIONS = ("embed_dim", "vision_cfg", "quick_gelu")
"""Options of open_clip's configuration that determine the image side of a model."""

PROMPT = "a photo of a {}."
"""Text of a class of a zero-shot classifier."""

LIBRARIES = {"hf": "transformers", "open_clip": "open_clip"}
"""How the names of a library's models begin, with the library."""


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
            raise BadSetting(
                f"{named('text_embeddings')} has shape {tuple(text_embeddings.shape)}",
                "it must be (K, D)",
                setting="text_embeddings",
            )
        self.out_features, self.in_features = text_embeddings.shape
        self.weight = nn.Parameter(functional.normalize(text_embeddings.detach(), dim=1))
        self.register_buffer("logit_scale", torch.as_tensor(logit_scale).detach().to(self.weight, copy=True))

    def forward(self, features: Tensor) -> Tensor:
        images = functional.normalize(features, dim=1)
        texts = functional.normalize(self.weight, dim=1)
        return self.logit_scale * images @ texts.T


class ZeroShotClassifier(nn.Sequential):
    """The image side of a model of open_clip and as its ``head`` the texts of the classes. ``options`` are those of
    open_clip's configuration and ``num_classes``; weights are random."""

    preprocessing: Preprocessing | None = None  # of the image side

    def __init__(self, **options: Any):
        import open_clip

        vision_options = {**options["vision_cfg"], "timm_model_pretrained": False}
        smallest_text_side = open_clip.CLIPTextCfg(context_length=1, vocab_size=1, width=8, heads=1, layers=1)
        whole = open_clip.CLIP(options["embed_dim"], vision_options, smallest_text_side, options["quick_gelu"])
        head = CosineHead(torch.ones(options["num_classes"], options["embed_dim"]))
        super().__init__(OrderedDict(visual=whole.visual, head=head))
        self.options = options


def require_library_of(arch: str) -> None:
    """Raise an error where the library of ``hf:NAME`` or ``open_clip:NAME`` is missing; other names need none."""
    prefix = arch.partition(":")[0]
    if prefix in LIBRARIES:
        require(named("arch", arch), LIBRARIES[prefix], extra="foundation")


def load_named(
    arch: str, classes: list[str] | None, allow_download: bool = False
) -> tuple[nn.Module, list[str] | None]:
    """Load the network of ``hf:NAME`` or ``open_clip:NAME``, images -> logits, with its weights and the names of its
    classes, if known. NAME is a folder, a name on the hub or a model with a tag or file of weights."""
    library, _, name = arch.partition(":")
    require_library_of(arch)
    try:
        with _hub(allow_download):
            if library == "hf":
                network, recorded_classes = _image_classifier(name)
                return network, classes or recorded_classes
            if library != "open_clip":
                raise unknown_name("library of an architecture", f"{library}:", ("hf:", "open_clip:"))
            if classes is None:
                raise BadSetting(
                    f"{named('arch')} {arch} needs the names of the classes",
                    f"pass a file of them as {named('class_names')}",
                    setting="arch",
                )
            return _zero_shot(name, classes), classes
    except UserError:
        raise
    except Exception as error:  # of files, of the cache and of networks, of any kind
        if allow_download or os.path.exists(name) or os.path.isfile(name.partition("/")[2]):
            place = ""
            advice = "load the model in Python and pass it to tllib_ancon.adapt"
        else:
            place = " from the hub's cache"
            advice = f"{named('allow_download', True)} asks the hub for it"
        raise BadSetting(
            f"{named('arch')} {arch} cannot be loaded{place} ({one_line(error)})", advice, setting="arch"
        ) from error


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


def _image_classifier(name: str) -> tuple[nn.Module, list[str] | None]:
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    model, loading = AutoModelForImageClassification.from_pretrained(
        name, output_loading_info=True, dtype=torch.float32, trust_remote_code=False
    )
    if loading["missing_keys"]:
        first_missing = min(loading["missing_keys"])
        raise BadModel(
            f"hf:{name} holds no image classifier: it has no {first_missing}", "name a model for image classification"
        )
    try:
        processor = AutoImageProcessor.from_pretrained(name, trust_remote_code=False)
        model.preprocessing = preprocessing_of_processor(processor)
    except OSError:  # there is none
        pass
    return model, class_names_of(model, model.config.num_labels)


def _zero_shot(name: str, classes: Sequence[str]) -> nn.Module:
    import open_clip

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
        tags = open_clip.list_pretrained_tags_by_model(model_name)
        if weights not in tags and not os.path.isfile(weights):
            raise unknown_name(f"file or tag of weights of {model_name}", weights, tags)
        return model_name, weights
    if not weights or os.path.isfile(weights):
        raise unknown_name("model of open_clip", model_name, open_clip.list_models())
    return f"hf-hub:{name}", None
