"""A batch of one tensor or of several by name keeps its structure, its types and its rows."""

import pytest
import torch

from tllib_ancon.data.batches import (
    are_images,
    concatenated,
    form_of,
    num_rows,
    shape_text,
    to_device,
    tree_map,
    with_floats_as,
    zeros_of,
)

TENSOR = torch.arange(24.0).view(2, 3, 4)
NAMED = {"tokens": torch.tensor([[1, 2], [3, 4]]), "age": torch.tensor([0.5, 1.5])}


@pytest.mark.parametrize(
    ("batch", "form", "text"),
    [
        (TENSOR, ["float32", 3, 4], "(2, 3, 4)"),
        (NAMED, {"tokens": ["int64", 2], "age": ["float32"]}, "{'tokens': (2, 2), 'age': (2,)}"),
    ],
)
def test_the_form_of_a_batch_makes_one_like_it(batch, form, text):
    assert form_of(batch) == form
    assert shape_text(batch) == text
    assert num_rows(batch) == 2
    zeros = zeros_of(form, 5)
    assert form_of(zeros) == form
    assert num_rows(zeros) == 5
    twice = concatenated([batch, zeros])
    assert num_rows(twice) == 7
    assert form_of(twice) == form
    parts = twice if isinstance(twice, dict) else {"": twice}
    of_batch = batch if isinstance(batch, dict) else {"": batch}
    for name, part in parts.items():
        assert torch.equal(part[:2], of_batch[name])
        assert not part[2:].any()


def test_only_floats_change_their_type():
    halved = with_floats_as(NAMED, torch.float16)
    assert [part.dtype for part in halved.values()] == [torch.int64, torch.float16]
    moved = to_device(NAMED, torch.device("meta"))
    assert [part.device.type for part in moved.values()] == ["meta", "meta"]
    dimensions = tree_map(lambda tensor: tensor.ndim, {"a": NAMED, "b": TENSOR})
    assert dimensions == {"a": {"tokens": 2, "age": 1}, "b": 3}


def test_images_are_one_tensor_of_four_axes():
    assert are_images(TENSOR[None])
    assert not are_images(TENSOR)
    assert not are_images({"images": TENSOR[None]})
