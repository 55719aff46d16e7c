"""Any network of images that ends in logits, as features and a head."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.errors import UserError, one_line, unknown_name
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.models.preprocessing import preprocessing_of

IMAGE_SIZE = 224
"""Side of the images that a network is probed with if nothing says what it takes."""


def as_classifier(
    model: nn.Module, head: str | None = None, probe: Tensor | None = None, finetune: bool = True
) -> Classifier:
    """The model as a :class:`~tllib_ancon.models.classifier.Classifier`; one that is a classifier is returned as it is.

    The head is the ``nn.Linear`` that the network calls last, if it takes (B, D) to (B, K); the features are what
    enters it. One forward pass in evaluation mode, without gradients, finds it.

    Args:
        model (nn.Module): images (B, C, H, W) -> logits (B, K); trained in place
        head (str, optional): dotted name of the head, e.g. ``fc``, if it is another module
        probe (Tensor, optional): a few images that the model takes, (B, C, H, W). Default: zeros, of the size in the
            metadata of a timm model, else (2, 3, 224, 224)
        finetune (bool): the network is pre-trained and learns at a tenth of the head's rate. Default: True

    Returns: its ``features_dim`` and ``head`` are None if the network has no such layer

    Raises:
        UserError: a model that cannot be called on the probe or whose output is not (B, K); a ``head`` that it has
            not, does not call, or that gets something other than (B, D)
    """
    return model if isinstance(model, Classifier) else find_head(model, head, probe, finetune)


class NetworkClassifier(Classifier):
    """A whole network, of which a part is known to be the head.

    The state dict is the network's own. While this object lives, the head has a forward hook.

    Args:
        network (nn.Module): images (B, C, H, W) -> logits (B, K)
        num_classes (int): K
        head_name (str, optional): dotted name of the head in the network
        features_dim (int, optional): D
        finetune (bool): the network is pre-trained and learns at a tenth of the head's rate. Default: True
    """

    def __init__(
        self,
        network: nn.Module,
        num_classes: int,
        head_name: str | None,
        features_dim: int | None,
        finetune: bool = True,
    ):
        super().__init__()
        self.network = network
        self.num_classes = num_classes
        self.head_name = head_name
        self.features_dim = features_dim
        self.finetune = finetune
        self.preprocessing = preprocessing_of(network)
        self._entrance = _Entrance()
        self._hook = None if self.head is None else self.head.register_forward_pre_hook(self._entrance)
        self.register_load_state_dict_pre_hook(_as_names_of_the_wrapper)  # type: ignore[no-untyped-call]

    def release(self) -> nn.Module:
        """The network, without the hook; this object finds its features no more."""
        if self._hook is not None:
            self._hook.remove()
        return self.network

    def __del__(self) -> None:
        if "_hook" in self.__dict__:
            self.release()

    @property
    def head(self) -> nn.Module | None:
        return None if self.head_name is None else self.network.get_submodule(self.head_name)

    def predict(self, images: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.network(images)
        features = self._entrance.take()
        if not isinstance(logits, Tensor):
            raise UserError(f"the model gives {described(logits)} in this mode where logits (B, K) are expected")
        return logits, logits.new_empty(len(logits), 0) if features is None else features

    def state_dict(self, *args: Any, **options: Any) -> Any:
        return self.network.state_dict(*args, **options)

    def load_state_dict(self, *args: Any, **options: Any) -> Any:
        return self.network.load_state_dict(*args, **options)

    def _rates(self) -> list[tuple[Iterable[nn.Parameter], float]]:
        head = [] if self.head is None else list(self.head.parameters())
        of_head = {id(parameter) for parameter in head}
        backbone = [parameter for parameter in self.network.parameters() if id(parameter) not in of_head]
        return [(backbone, 0.1 if self.finetune else 1.0), (head, 1.0)]


def find_head(
    network: nn.Module, head: str | None = None, probe: Tensor | None = None, finetune: bool = True
) -> NetworkClassifier:
    """:func:`as_classifier` for a network that is not a classifier of this package."""
    modules = dict(network.named_modules())
    if head is not None and head not in modules:
        raise unknown_name("module of the model", head, modules)
    linears = {name: module.out_features for name, module in modules.items() if isinstance(module, nn.Linear)}
    logits, calls = _run(network, linears if head is None else [head], probe)
    num_classes = logits.shape[1]
    name, features_dim = calls[-1] if calls else (None, None)
    if head is None and (name is None or features_dim is None or linears[name] != num_classes):
        return NetworkClassifier(network, num_classes, None, None, finetune)
    if name is None:
        raise UserError(f"the model does not call its module {head}, which `head` names")
    if features_dim is None:
        raise UserError(
            f"what enters {head}, which `head` names, is not (B, D): name a module that comes after pooling"
        )
    return NetworkClassifier(network, num_classes, name, features_dim, finetune)


class _Entrance:
    """A forward hook that holds what entered the head last. A copy holds nothing."""

    def __init__(self) -> None:
        self.features: Tensor | None = None

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.features = inputs[0]

    def take(self) -> Tensor | None:
        features, self.features = self.features, None
        return features

    def __reduce__(self) -> tuple[type[_Entrance], tuple[()]]:
        return _Entrance, ()


def _as_names_of_the_wrapper(module: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    """For the state dict of a module that the wrapper is a part of."""
    for name in [name for name in state if name.startswith(prefix)]:
        state[f"{prefix}network.{name.removeprefix(prefix)}"] = state.pop(name)


Calls = list[tuple[str, int | None]]
"""Modules in the order in which they were called, and the width D of what entered them if that was features (B, D)."""


def _run(model: nn.Module, names: Iterable[str], probe: Tensor | None) -> tuple[Tensor, Calls]:
    """The model's logits of a few images, and the calls of these of its modules."""
    images = probe_images(model) if probe is None else probe.to(_device(model))
    calls: Calls = []

    def remember(name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        return lambda _, inputs: calls.append((name, _width(inputs, len(images))))

    hooks = [model.get_submodule(name).register_forward_pre_hook(remember(name)) for name in names]
    try:
        with evaluation_mode(model), torch.no_grad():
            output = model(images)
    except Exception as error:  # any error can come out of a person's own network
        hint = "; give a few images that it takes as `probe`" if probe is None else ""
        shape = tuple(images.shape)
        raise UserError(f"the model cannot be called on images of shape {shape} ({one_line(error)}){hint}") from error
    finally:
        for hook in hooks:
            hook.remove()
    if not _is_logits(output, len(images)):
        raise UserError(
            f"the model gives {described(output)} for {len(images)} images where logits ({len(images)}, K) are "
            "expected; wrap it in a module that returns the logits alone"
        )
    return output, calls


def probe_images(model: nn.Module) -> Tensor:
    """Two black images of the size that the network's metadata tells, else of 224 pixels."""
    known = preprocessing_of(model)
    side = known.image_size if known and known.image_size else IMAGE_SIZE
    parameter = next(model.parameters(), torch.empty(0))
    return parameter.new_zeros(2, len(known.mean) if known else 3, side, side)


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters(), torch.empty(0)).device


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Every module in evaluation mode, and in its own again afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _width(inputs: tuple[Any, ...], batch_size: int) -> int | None:
    match inputs:
        case (Tensor(ndim=2) as features, *_) if len(features) == batch_size:
            return features.shape[1]
    return None


def _is_logits(output: object, batch_size: int) -> bool:
    return (
        isinstance(output, Tensor)
        and output.ndim == 2
        and len(output) == batch_size
        and output.is_floating_point()
        and output.shape[1] > 0
    )


def described(output: object) -> str:
    """A network's output in words, for a message."""
    if isinstance(output, Tensor):
        return f"{tuple(output.shape)} of {output.dtype}"
    return f"a {type(output).__name__}"
