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

BYTES = torch.from_numpy(PIXELS).movedim(-1, 1).contiguous()
FLOATS = BYTES / 127.5 - 1


def adapted(device):
    settings = {"epochs": 2, "mixed_precision": "no", "quiet": True}
    model = tllib_ancon.adapt(network().to(device), BYTES.to(device), **settings).model
    tensors = [*model.state_dict().values(), *model.parameters()]
    assert {device_of(tensor) for tensor in tensors} == {device}
    return [tensor.detach().cpu() for tensor in tensors]


def predicted(device):
    """For each type that holds tensors."""
    model = network().to(device)
    dataset = TensorDataset(BYTES.to(device), torch.from_numpy(LABELS).to(device))
    predictions = [tllib_ancon.predict(model, images) for images in (FLOATS.to(device), BYTES.to(device), dataset)]
    assert {device_of(tensor) for tensor in model.parameters()} == {device}
    return [torch.from_numpy(found.probabilities) for found in predictions]


def streamed(device):
    stream = tllib_ancon.online(network().to(device))
    return [stream(batch.to(device)).cpu() for batch in FLOATS.split(65)]


@pytest.mark.parametrize("call", [adapted, predicted, streamed])
def test_a_module_on_either_device_gives_what_the_cpu_gives(call):
    expected = call(CPU)
    for device in (CPU, DEVICE):
        with StandIn():
            found = call(device)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_a_stream_of_images_on_another_device_is_an_error_that_says_where_to_move_them():
    message = r"cannot be called on images of shape .* on cpu .* of this shape, type and device"
    with StandIn(), one_line(message):
        tllib_ancon.online(network().to(DEVICE))(FLOATS)
