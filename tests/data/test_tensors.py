"""Inputs that are no images reach the model as rows of floats or integers, and a bad row is named."""

import numpy as np
import pytest
import torch
from torch.utils.data import Subset, TensorDataset

from tests.support.refusals import one_line, refused
from tllib_ancon.data.open import as_domain
from tllib_ancon.data.tensors import on_cpu, rows_of

ROWS = np.linspace(-1, 1, 24).reshape(4, 6)


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        ROWS.astype(np.float16),
        ROWS.reshape(4, 2, 3),
        ROWS.reshape(4, 1, 2, 3),
        2 * np.abs(ROWS).reshape(4, 2, 1, 3),
        ROWS.reshape(4, 2, 1, 3),
        torch.from_numpy(ROWS).requires_grad_(),
        torch.from_numpy(np.abs(ROWS)).reshape(4, 2, 1, 3),
    ],
    ids=lambda rows: f"{type(rows).__name__} {tuple(rows.shape)} {rows.dtype}",
)
def test_rows_of_floats_reach_the_model_in_single_precision(rows):
    domain = as_domain(rows)
    assert domain.holds_tensors
    assert len(domain) == 4
    row = domain.image(2)
    assert row.dtype == torch.float32
    assert not row.requires_grad
    torch.testing.assert_close(row, torch.as_tensor(rows[2]).detach().float())


@pytest.mark.parametrize(
    "pixels",
    [
        np.abs(ROWS).reshape(4, 2, 1, 3),
        np.abs(ROWS).reshape(4, 3, 2, 1),
        np.zeros((4, 2, 5), np.uint8),
        np.zeros((4, 2, 3), np.uint16),
        np.zeros((4, 2, 3, 3), np.int32),
        torch.zeros(4, 3, 2, 2, dtype=torch.uint8),
    ],
    ids=lambda pixels: f"{tuple(pixels.shape)} {pixels.dtype}",
)
def test_pixels_are_images(pixels):
    domain = as_domain(pixels)
    assert not domain.holds_tensors
    assert domain.image(0).mode == "RGB"


@pytest.mark.parametrize("kind", ["int64", "int8", "uint8", "bool", "uint16", "int32"])
def test_features_that_are_integers_are_refused(kind):
    advice = "convert them to float32, or reshape pixels to (N, C, H, W)"
    with refused(f"ndarray: features are integers ({kind}); {advice}"):
        as_domain(np.ones((4, 6), kind))


def test_arrays_that_hold_no_rows():
    with refused("ndarray: the array has no rows, it is one float64; expected the shape (N, ...)"):
        as_domain(np.array(3.0))
    assert rows_of([1, 2], "a list") is None


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_named(bad):
    rows = np.ones((9, 2, 3))
    rows[1, 0, 2] = bad
    with refused("ndarray: NaN or infinity in 1 rows (1); remove them or fill them in"):
        as_domain(rows)
    rows[2:8, 1, 1] = bad
    with refused("ndarray: NaN or infinity in 7 rows (1, 2, 3, 4, 5, and 2 more); remove them or fill them in"):
        as_domain(rows)
    with refused("dict, b: NaN or infinity in 1 rows (0); remove them or fill them in"):
        as_domain({"a": np.ones((2, 3)), "b": torch.tensor([bad, 1])})


def test_a_large_array_is_checked_while_it_is_read(monkeypatch):
    rows = np.ones((4, 3))
    rows[3, 1] = np.nan
    monkeypatch.setattr("tllib_ancon.data.tensors.CHECKED", rows.nbytes - 1)
    domain = as_domain(rows)
    assert domain.image(2).tolist() == [1, 1, 1]
    with refused("ndarray: NaN or infinity in 1 rows (3); remove them or fill them in"):
        domain.image(3)
    monkeypatch.setattr("tllib_ancon.data.tensors.CHECKED", rows.nbytes)
    with refused("ndarray: NaN or infinity in 1 rows (3); remove them or fill them in"):
        as_domain(rows)


def test_several_arrays_reach_the_model_by_name_in_the_types_of_layers():
    arrays = {
        "tokens": np.array([[1, 2], [3, 4]], np.int16),
        "mask": np.array([True, False]),
        "age": np.array([0.5, 1.5]),
    }
    domain = as_domain(arrays)
    assert len(domain) == 2
    sample = domain.image(1)
    assert {name: value.tolist() for name, value in sample.items()} == {"tokens": [3, 4], "mask": False, "age": 1.5}
    assert [value.dtype for value in sample.values()] == [torch.int64, torch.bool, torch.float32]
    with refused("dict: the arrays have different lengths (tokens 2, age 3); give each a row for every sample"):
        as_domain({"tokens": arrays["tokens"], "age": np.ones(3)})
    advice = "convert text to numbers and pad all rows to one length, or pass the column of paths alone"
    with one_line(rf"^dict cannot be read as arrays of numbers \(.*; {advice}, such as"):
        as_domain({"name": ["a", "b"]})


def test_everything_around_tensors_stays_what_it_is():
    leaf = torch.ones(3, requires_grad=True)
    dataset = TensorDataset(leaf, torch.arange(3))
    part = Subset(dataset, [2, 0])
    moved = on_cpu({"list": [leaf, "text"], "pair": (leaf, 3), "part": part})
    assert not moved["list"][0].requires_grad
    assert moved["list"][1] == "text"
    assert type(moved["pair"]) is tuple
    assert moved["pair"][1] == 3
    assert moved["part"].indices == [2, 0]
    assert [value.tolist() for value in moved["part"][0]] == [1.0, 2]
    assert not moved["part"].dataset.tensors[0].requires_grad
