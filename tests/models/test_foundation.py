"""Images are prepared as transformers' processors do, and the cosine head is CLIP's similarity."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional

from tests.support.refusals import one_line
from tllib_ancon.data.transforms import KEEP_RATIO, evaluation_transform
from tllib_ancon.models.foundation import CosineHead
from tllib_ancon.models.preprocessing import preprocessing_of_processor

transformers = pytest.importorskip("transformers", minversion="5")

SQUARE = {"height": 32, "width": 32}
LARGER = {"height": 40, "width": 40}
PROCESSORS = {
    "square": ("ViTImageProcessor", {"size": SQUARE}, (32, 1, "default")),
    "its centre": ("DeiTImageProcessor", {"size": LARGER, "crop_size": SQUARE}, (32, 0.8, "default")),
    "ratio": ("CLIPImageProcessor", {"size": {"shortest_edge": 43}, "crop_size": SQUARE}, (32, 32 / 43, KEEP_RATIO)),
    "share": ("ConvNextImageProcessor", {"size": {"shortest_edge": 32}, "crop_pct": 0.8}, (32, 0.8, KEEP_RATIO)),
    "large": ("ConvNextImageProcessor", {"size": {"shortest_edge": 384}}, (384, 1, "default")),
    "bytes": ("ViTImageProcessor", {"size": SQUARE, "do_rescale": False, "image_std": [1, 2, 3]}, (32, 1, "default")),
    "not normalised": ("SiglipImageProcessor", {"size": SQUARE, "do_normalize": False}, (32, 1, "default")),
}
LEVELS = {"": 2, "Pil": 0}
"""Of 255, the largest difference from processors that resize tensors, by torchvision, or images, by Pillow. Of white
noise torchvision's is up to 20: Pillow cuts off what overshoots between its two passes."""


@pytest.mark.parametrize("backend", LEVELS)
@pytest.mark.parametrize("kind", PROCESSORS)
def test_evaluation_is_the_processors(kind, backend):
    name, settings, geometry = PROCESSORS[kind]
    processor = getattr(transformers, name + backend)(**settings)
    known = preprocessing_of_processor(processor)
    assert (known.image_size, known.crop_fraction, known.val_resizing) == geometry
    transform = evaluation_transform(known)
    generator = np.random.default_rng(0)
    for width, height in [(50, 30), (47, 64), (71, 47), (32, 32)]:
        coarse = generator.integers(0, 256, (height // 4, width // 4, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((width, height))
        expected = processor(image, return_tensors="pt")["pixel_values"][0]
        difference = (transform(image) - expected).abs()
        levels = 255 * difference * torch.tensor(known.std).view(3, 1, 1)
        assert levels.max() <= LEVELS[backend] + 1e-4


def test_mean_and_standard_deviation_are_the_settings_also_of_a_processor_of_text_and_images():
    processor = transformers.CLIPImageProcessor()
    both = type("Both", (), {"image_processor": processor})()
    for one in (processor, both):
        known = preprocessing_of_processor(one)
        assert known.mean == tuple(processor.image_mean)
        assert known.std == tuple(processor.image_std)


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("Siglip2ImageProcessor", {}, "has no size with shortest_edge or height; pass"),
        ("MobileViTImageProcessor", {}, "does more than to resize, crop and normalise"),  # red and blue change places
        ("DonutImageProcessor", {"size": SQUARE}, "does more than"),  # it pads
        ("ImageGPTImageProcessor", {}, "cannot be applied to an RGB image"),
    ],
)
def test_a_processor_that_does_something_else_is_refused(name, settings, said):
    with one_line(said):
        preprocessing_of_processor(getattr(transformers, name)(**settings))


def test_the_cosine_head_is_clips_similarity():
    texts = torch.randn(5, 8)
    features = 3 * torch.randn(4, 8)
    head = CosineHead(texts, torch.tensor(20.0))
    expected = 20 * functional.cosine_similarity(features[:, None], texts[None], dim=-1)
    torch.testing.assert_close(head(features), expected)
    assert head.in_features == 8
    assert head.out_features == 5
    with one_line(r"shape \(8,\); it must be \(K, D\)"):
        CosineHead(texts[0])
