"""A few images of the target, with which a network is tried before it adapts."""

from torch import Tensor

from tllib_ancon.data.batches import with_floats_as
from tllib_ancon.models.calling import evaluating
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.models.copies import recording_gradients
from tllib_ancon.runtime.errors import BadModel, named


def require_gradient(model: Classifier, images: Tensor, adapted: str | None) -> None:
    """Raise an error if no parameter that learns has a gradient: a forward that computes it under ``no_grad``."""
    if _has_gradient(model, images):
        return
    action = "remove that context or operation from the forward: adapt needs none and predict sets its own"
    if adapted != "all" and _would_have_gradient(model, images):
        action = f"pass {named('adapted', 'all')}, which also trains the parameters outside that context"
    raise without_gradient(f"with {named('adapted', adapted)} ", action)


def without_gradient(how: str = "", action: str = "remove that context or operation from the forward") -> BadModel:
    """The error for a model without a gradient of any parameter that learns ``how``."""
    return BadModel(
        f"no parameter that learns {how}reaches the loss: the model's forward computes it under torch.no_grad(), "
        "torch.inference_mode() or an operation without a gradient, such as argmax",
        action,
    )


def _would_have_gradient(model: Classifier, images: Tensor) -> bool:
    """Whether the logits have a gradient where all parameters learn."""
    flags = [parameter.requires_grad for parameter in model.parameters()]
    model.requires_grad_(True)
    has_gradient = _has_gradient(model, images)
    for parameter, flag in zip(model.parameters(), flags, strict=True):
        parameter.requires_grad_(flag)
    return has_gradient


def _has_gradient(model: Classifier, images: Tensor) -> bool:
    weights = next(model.parameters())
    batch = with_floats_as(images.to(weights.device), weights.dtype)
    try:
        with evaluating(model), recording_gradients():
            logits, _ = model.predict(batch)
    except RuntimeError as error:
        if "nference tensor" not in str(error):
            raise
        return False
    return logits.requires_grad
