"""Whole networks by name, of torchvision and timm: which library a name is of, its options, its weights."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from tllib_ancon.errors import UserError, one_line, unknown_name
from tllib_ancon.models.classifier import require_modest_layer

HEADLESS = ("small_cnn", "shot_lenet", "lenet", "dtn")
"""Networks that are a backbone alone."""

TIMM, TORCHVISION = "timm/", "torchvision/"
"""Prefixes that say which library a name is of. A bare name is torchvision's for its ResNets, as in TLLib, else timm's.
"""

WITHOUT_DOWNLOAD = "pass a file as `pretrained_weights`, or `scratch=True` to start without"
SECONDS = 5
"""To wait for an answer of the hub that has timm's weights."""

TYPICAL_WIDTH = 2048
"""Of the features before a head, for the limit on the number of classes."""

RESERVED_OPTIONS = (
    "cache_dir",
    "checkpoint_path",
    "num_classes",
    "pretrained",
    "pretrained_cfg",
    "pretrained_cfg_overlay",
    "pretrained_filter_fn",
    "pretrained_model_args",
    "pretrained_strict",
)
"""What timm's factory takes beside the options of the network: weights, files and addresses among them."""


def names() -> list[str]:
    """Every network that is known on this machine; torchvision's and timm's may also be asked for by prefix."""
    import timm

    resnets = torchvision_resnets()
    of_timm = [name for name in timm.list_models() if name not in resnets]
    of_torchvision = [TORCHVISION + name for name in _torchvision_names() if name not in resnets]
    return [*HEADLESS, *resnets, *of_timm, *of_torchvision]


def create_network(
    name: str, num_classes: int | None = None, pretrained: bool = False, options: Mapping[str, Any] | None = None
) -> nn.Module:
    """Build a whole network of torchvision or timm, images -> logits.

    Args:
        name: see :func:`names`
        num_classes: K. Default: that of its ImageNet weights
        pretrained: load the model zoo's weights (torchvision's V1, timm's default)
        options: keyword arguments of the timm model

    Raises:
        UserError: an unknown name or option, a network without a head of its own; weights that cannot be had
    """
    library, bare = library_of(name)
    require_own_options(name, library, options)
    if library is None:
        raise UserError(f"{name} has no ImageNet classifier: it is a backbone alone")
    require_modest_layer(TYPICAL_WIDTH, num_classes or 0, "num_classes")
    build = timm_network if library == TIMM else torchvision_network
    return build(bare, pretrained, {**(options or {}), **({} if num_classes is None else {"num_classes": num_classes})})


def has_own_head(name: str) -> bool:
    """Whether :func:`create_network` knows this name.

    Raises:
        UserError: no network has this name
    """
    return library_of(name)[0] is not None


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """``["pad_type=same", "drop_rate=0.1"]`` -> ``{"pad_type": "same", "drop_rate": 0.1}``.

    Raises:
        UserError: an entry without "="
    """
    options = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UserError(f"`arch_option` {text!r}: expected KEY=VALUE, e.g. pad_type=same")
        try:
            options[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[key] = value
    return options


def torchvision_resnets() -> list[str]:
    """Names that TLLib takes from torchvision rather than from timm."""
    from torchvision.models import resnet

    return [name for name in resnet.__all__ if name.islower()]


def _torchvision_names() -> list[str]:
    from torchvision import models

    return list(models.list_models(module=models))


def library_of(name: str) -> tuple[str | None, str]:
    """The prefix of the library that has this network, None for one without a head, and its name there."""
    import timm

    if name in HEADLESS:
        return None, name
    library, _, bare = name.rpartition("/")
    library = f"{library}/" if library else TORCHVISION if name in torchvision_resnets() else TIMM
    if library == TIMM and timm.is_model(bare):
        _require_tag(bare)
        return library, bare
    if library == TORCHVISION and bare in _torchvision_names():
        return library, bare
    if "/" not in name:
        raise unknown_name("architecture", name, names())
    if library not in (TIMM, TORCHVISION):
        raise unknown_name("library of an architecture", library, (TIMM, TORCHVISION))
    known = timm.list_models() if library == TIMM else _torchvision_names()
    raise unknown_name("architecture", name, [library + other for other in known])


def _require_tag(name: str) -> None:
    """Refuse a name of timm whose second part, as in ``resnet50.a1_in1k``, is none of its weights."""
    import timm

    arch, dot, tag = name.partition(".")
    if dot and name not in (known := timm.list_pretrained(f"{arch}.*")):
        raise unknown_name(f"weights of {arch}", tag, [other.partition(".")[2] for other in known])


def require_own_options(name: str, library: str | None, options: Mapping[str, Any] | None) -> None:
    """Refuse options that are not of the network itself: its weights come by other settings, and no option may name a
    file or an address."""
    for option, value in (options or {}).items():
        if library != TIMM:
            raise UserError(f"`arch_option` is for timm models; {name} takes none, got {option}")
        if option in RESERVED_OPTIONS:
            raise UserError(f"`arch_option` {option} is not of the network {name}; weights go to `pretrained_weights`")
        if _names_a_place(value):
            raise UserError(
                f"`arch_option` {option}: {value!r} names a file or an address; weights go to `pretrained_weights`"
            )


def _names_a_place(value: object) -> bool:
    if isinstance(value, str):
        return any(sign in value for sign in "/\\:.")
    if isinstance(value, Mapping):
        return any(map(_names_a_place, value.values()))
    return isinstance(value, list | tuple | set) and any(map(_names_a_place, value))


def torchvision_network(name: str, pretrained: bool, options: Mapping[str, Any]) -> nn.Module:
    from torchvision import models

    weights = None
    if pretrained:
        known = models.get_model_weights(name)
        weights = getattr(known, "IMAGENET1K_V1", known.DEFAULT)
    return _from_zoo(name, pretrained, lambda: models.get_model(name, weights=weights, **options))


def timm_network(name: str, pretrained: bool, options: Mapping[str, Any]) -> nn.Module:
    import timm

    if pretrained:
        _require_reachable_weights(name)
    try:
        return _from_zoo(name, pretrained, lambda: timm.create_model(name, pretrained=pretrained, **options))
    except TypeError as error:
        raise UserError(f"`arch_option`: {name} does not accept {dict(options)} ({one_line(error)})") from error


def _from_zoo(name: str, pretrained: bool, build: Callable[[], nn.Module]) -> nn.Module:
    try:
        return build()
    except TypeError:
        raise
    except Exception as error:  # downloads, damaged files and unusual options can lead to any error
        if not pretrained:
            raise UserError(f"{name} cannot be built ({one_line(error)})") from error
        raise UserError(
            f"the pre-trained weights of {name} could not be loaded ({one_line(error)}); {WITHOUT_DOWNLOAD}"
        ) from error


def _require_reachable_weights(name: str) -> None:
    """Ask once whether timm's weights can be downloaded: its own download tries for about 50 seconds.

    Raises:
        UserError: they are not in the cache, and the hub does not answer
    """
    import timm
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError

    config = timm.get_pretrained_cfg(name)
    if config is None or not config.hf_hub_id:
        return
    files = [config.hf_hub_filename] if config.hf_hub_filename else ["model.safetensors", "pytorch_model.bin"]
    if any(isinstance(try_to_load_from_cache(config.hf_hub_id, file), str) for file in files):
        return
    try:
        get_hf_file_metadata(hf_hub_url(config.hf_hub_id, files[0]), timeout=SECONDS)
    except HfHubHTTPError:  # it answers; timm tries the other files
        return
    except Exception as error:  # the network's errors have no class in common
        raise UserError(
            f"the pre-trained weights of {name} are not in the cache, and {config.hf_hub_id} cannot be reached "
            f"({one_line(error)}); {WITHOUT_DOWNLOAD}"
        ) from error
