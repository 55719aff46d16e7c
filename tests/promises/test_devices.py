"""Every public function on the stand-in with default settings and a module on either device.

Two workers read the images in every case. What comes back is on the device of the caller's module, and agrees with what
the CPU alone returns.
"""

import pytest
import torch
from torch.utils.data import TensorDataset

import tllib_ancon
from tests.support.arrays import LABELS, PIXELS, network
from tests.support.refusals import one_line
from tests.support.stand_in import CPU, DEVICE, StandIn, device_of

pytestmark = pytest.mark.usefixtures("no_gpu")

ROUNDING = 1e-3
QUICK = {"epochs": 2, "mixed_precision": "no", "quiet": True}


FLOATS = torch.from_numpy(PIXELS).movedim(-1, 1) / 127.5 - 1
BYTES = torch.from_numpy(PIXELS).movedim(-1, 1).contiguous()


def images(kind, device):
    """The images as each type that holds tensors, on a device."""
    if kind == "bytes":
        return BYTES.to(device)
    if kind == "dataset":
        return TensorDataset(BYTES.to(device), torch.from_numpy(LABELS).to(device))
    return FLOATS.to(device)


KINDS = ("floats", "bytes", "dataset")


def adapt(kind, device, **settings):
    return tllib_ancon.adapt(network().to(device), images(kind, device), **{**QUICK, **settings})


def parameters(model):
    return [tensor.detach().cpu() for tensor in model.state_dict().values()]


def adapted(kind, device, **settings):
    result = adapt(kind, device, **settings)
    assert {device_of(tensor) for tensor in result.model.state_dict().values()} == {device}
    assert {device_of(tensor) for tensor in result.model.parameters()} == {device}
    return parameters(result.model)


def predicted(kind, device):
    model = network().to(device)
    predictions = tllib_ancon.predict(model, images(kind, device))
    assert {device_of(tensor) for tensor in model.parameters()} == {device}
    return [torch.from_numpy(predictions.probabilities)]


def streamed(kind, device):
    stream = tllib_ancon.online(network().to(device))
    return [stream(batch.to(device)).cpu() for batch in FLOATS.split(65)]


CALLS = {
    "adapt": (adapted, ("bytes",)),
    "predict": (predicted, KINDS),
    "online": (streamed, ("floats",)),
}
CASES = [(name, kind) for name, (_, kinds) in CALLS.items() for kind in kinds]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_module_on_either_device_gives_what_the_cpu_gives(name, kind):
    call = CALLS[name][0]
    expected = call(kind, CPU)
    for device in (CPU, DEVICE):
        with StandIn():
            found = call(kind, device)
        torch.testing.assert_close(found, expected, rtol=ROUNDING, atol=ROUNDING)


def test_a_stream_of_images_on_another_device_is_an_error_that_says_where_to_move_them():
    message = r"cannot be called on images of shape .* on cpu .* of this shape, type and device"
    with StandIn(), one_line(message):
        tllib_ancon.online(network().to(DEVICE))(FLOATS)
