"""Images are prepared by transformers' processors, and the cosine head is CLIP's similarity."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional

from tests.support.refusals import one_line
from tllib_ancon.models.foundation import CosineHead
from tllib_ancon.models.preprocessing import (
    preprocessing_by_transform,
    preprocessing_record,
    recorded_preprocessing,
)

transformers = pytest.importorskip("transformers", minversion="5")

SQUARE = {"height": 32, "width": 32}
PROCESSORS = {
    "square": ("ViTImageProcessor", {"size": SQUARE}),
    "red and blue change places": ("MobileViTImageProcessor", {"size": {"shortest_edge": 40}, "crop_size": SQUARE}),
}


@pytest.mark.parametrize("kind", PROCESSORS)
def test_the_processor_itself_prepares_images_and_is_built_again_from_its_record(kind):
    name, settings = PROCESSORS[kind]
    processor = getattr(transformers, name)(**settings)
    pixels = np.random.default_rng(0).integers(0, 256, (30, 50, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    expected = processor(image, return_tensors="pt")["pixel_values"][0]
    preprocessing = preprocessing_by_transform(processor)
    assert torch.equal(preprocessing.transform(image), expected)
    record = json.loads(json.dumps(preprocessing_record(preprocessing)))
    assert torch.equal(recorded_preprocessing(record).transform(image), expected)


def test_a_record_builds_nothing_but_an_image_processor():
    record = preprocessing_record(preprocessing_by_transform(transformers.ViTImageProcessor()))
    record["processor"]["image_processor_type"] = "AutoModel"
    with one_line("has no image processor AutoModel; pass `evaluation_transform`"):
        recorded_preprocessing(record)


def test_the_cosine_head_is_clips_similarity():
    texts = torch.randn(5, 8)
    features = 3 * torch.randn(4, 8)
    head = CosineHead(texts, torch.tensor(20.0))
    expected = 20 * functional.cosine_similarity(features[:, None], texts[None], dim=-1)
    torch.testing.assert_close(head(features), expected)
    assert head.in_features == 8
    assert head.out_features == 5
