"""Images as an array, and a network that predicts each of their classes."""

import numpy as np
import torch

from tests.support.networks import Net
from tllib_ancon.data.transforms import Preprocessing

IMAGES = 130  # two steps of the default batch size
CLASSES = 3
SIDE = 16
LABELS = np.arange(IMAGES) % CLASSES
PIXELS = np.random.default_rng(0).integers(0, 140, (IMAGES, SIDE, SIDE, 3), dtype=np.uint8)


def network():
    """A network that predicts every class."""
    torch.manual_seed(0)
    made = Net(CLASSES).eval()
    made.preprocessing = Preprocessing(image_size=SIDE)  # known, so that nothing has to be passed about it
    normalised = torch.from_numpy(PIXELS).movedim(-1, 1) / 127.5 - 1
    with torch.no_grad():
        made.head.weight *= 50
        made.head.bias -= made(normalised).mean(0)
    return made
