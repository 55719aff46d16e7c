"""Images and labels in one object are told apart by usual names; what could mean several things is refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.refusals import refused
from tllib_ancon.data.named_arrays import separated

PIXELS = np.arange(4 * 2 * 3 * 3, dtype=np.uint8).reshape(4, 2, 3, 3)
FLOATS = np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3)
LABELS = np.array([0, 1, 2, 1])


class OpenFile(Mapping[str, Any]):
    """A mapping of another library, such as an open HDF5 file, which is no dict."""

    def __init__(self, **arrays):
        self.arrays = arrays

    def __getitem__(self, key):
        return self.arrays[key]

    def __iter__(self):
        return iter(self.arrays)

    def __len__(self):
        return len(self.arrays)


def npz(folder, **arrays):
    np.savez(folder / "a.NPZ", **arrays)
    return (folder / "a.NPZ.npz").rename(folder / "a.NPZ")


def pt(folder, content, name="a.pt"):
    torch.save(content, folder / name)
    return folder / name


@pytest.mark.parametrize("image_name", ["images", "image", "imgs", "IMG", "pixel_values", "data", "X", "arr_0"])
@pytest.mark.parametrize("label_name", ["labels", "Label", "targets", "target", "y", "arr_1"])
def test_usual_names_of_a_mapping(image_name, label_name):
    for mapping in (dict, OpenFile):
        images, labels = separated(mapping(**{label_name: LABELS, image_name: PIXELS}))
        assert images is PIXELS
        assert labels is LABELS


@pytest.mark.parametrize(
    "pack",
    [
        lambda folder: npz(folder, images=PIXELS, labels=LABELS),
        lambda folder: npz(folder, x=PIXELS, y=LABELS, names=np.array(["a", "b"])),
        lambda folder: npz(folder, anything=PIXELS, labels=LABELS),
        lambda folder: np.load(npz(folder, data=PIXELS, targets=LABELS)),
        lambda folder: pt(folder, (torch.from_numpy(PIXELS), torch.from_numpy(LABELS))),
        lambda folder: pt(folder, [torch.from_numpy(PIXELS), torch.from_numpy(LABELS)], "a.pth"),
        lambda folder: pt(folder, {"X": torch.from_numpy(PIXELS), "Y": torch.from_numpy(LABELS), "epoch": 3}),
        lambda folder: (PIXELS, LABELS),
        lambda folder: (PIXELS, torch.from_numpy(LABELS)),
        lambda folder: (PIXELS, LABELS.astype(np.uint8)),
    ],
)
def test_files_and_pairs(tmp_path, pack):
    images, labels = separated(pack(tmp_path))
    assert np.array_equal(np.asarray(images), PIXELS)
    assert np.asarray(labels).tolist() == LABELS.tolist()


@pytest.mark.parametrize(
    "content",
    [
        PIXELS,
        "folder",
        Path("a.npz"),  # no file
        [PIXELS, LABELS],
        (PIXELS,),
        (PIXELS, LABELS, LABELS),
        (PIXELS, LABELS[:3]),
        (PIXELS, LABELS.astype(float)),
        (PIXELS, LABELS[:, None]),
        (np.array(3), LABELS),
        ("a.png", "b.png"),
    ],
    ids=str,
)
def test_everything_else_is_images(content):
    images, labels = separated(content)
    assert images is content
    assert labels is None


@pytest.mark.parametrize(
    ("arrays", "inputs", "has_labels"),
    [
        ({"images": PIXELS}, PIXELS, False),
        ({"images": PIXELS[..., 0].astype(np.uint16)}, PIXELS[..., 0], False),
        ({"x": FLOATS}, ["x"], False),
        ({"images": PIXELS[:, 0, 0]}, ["images"], False),
        ({"features": FLOATS, "age": FLOATS[:, 0]}, ["features", "age"], False),
        ({"features": FLOATS, "age": FLOATS[:, 0], "labels": LABELS}, ["features", "age"], True),
        ({"features": FLOATS, "age": FLOATS[:, 0], "y": LABELS}, ["features", "age", "y"], False),
        ({"images": PIXELS, "labels": LABELS, "targets": LABELS}, PIXELS, False),
        ({"images": PIXELS, "labels": LABELS[:3]}, ["images", "labels"], False),
        ({"images": PIXELS, "labels": FLOATS[:, 0]}, ["images", "labels"], False),
        ({"images": PIXELS, "depth": FLOATS, "labels": LABELS}, ["images", "depth"], True),
        ({1: PIXELS, 2: LABELS}, [1, 2], False),
        ({}, [], False),
    ],
)
def test_other_arrays_of_a_mapping_reach_the_model_by_their_names(arrays, inputs, has_labels):
    images, labels = separated(arrays)
    assert (labels is not None) == has_labels
    if isinstance(inputs, list):
        assert list(images) == inputs
        assert all(images[name] is arrays[name] for name in inputs)
    else:
        assert np.array_equal(images, inputs)


def test_a_file_without_labels_has_none(tmp_path):
    for labels in ({}, {"labels": LABELS[:3]}, {"labels": LABELS, "y": LABELS}):
        assert separated(npz(tmp_path, images=PIXELS, **labels)).labels is None
    tensor = torch.from_numpy(PIXELS)
    assert torch.equal(separated(pt(tmp_path, tensor)).images, tensor)


SEVERAL = "or save it with numpy.savez(FILE, images=..., labels=...)"


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"train_images": PIXELS, "train_labels": LABELS, "test_images": PIXELS},
            "FILE holds several sets: train_images, train_labels, test_images. Pass one, such as "
            f"images=arrays['train_images'] with labels=arrays['train_labels'], {SEVERAL}",
        ),
        (
            {"x_val": PIXELS, "names": LABELS},
            "FILE holds several sets: x_val. Pass one, such as images=arrays['x_val'] with labels=arrays['LABELS'], "
            f"{SEVERAL}",
        ),
        (
            {"left": PIXELS, "right": FLOATS, "count": LABELS},
            "FILE: no name says which array holds the images: left (4, 2, 3, 3), right (4, 3), count (4,); pass that "
            "array, or save it under the name images",
        ),
        (
            {"images": PIXELS, "image": FLOATS},
            "FILE: no name says which array holds the images: images (4, 2, 3, 3), image (4, 3); pass that array, or "
            "save it under the name images",
        ),
        (
            {},
            "FILE: no name says which array holds the images: no array; pass that array, or save it under the name "
            "images",
        ),
    ],
)
def test_a_file_that_could_mean_several_things(tmp_path, arrays, message):
    file = npz(tmp_path, **arrays)
    with refused(message, FILE=file):
        separated(file)
    with refused(message.replace("FILE", "the .npz file", 1)):
        separated(np.load(file))


def test_several_sets_in_a_mapping():
    for name in ("train_x", "test_x", "val_x", "validx", "validation_x", "x_validation", "Xtrain", "x_val"):
        sets = {name: PIXELS, "y_train": LABELS}
        pass_one = f"Pass one, such as images=arrays[{name!r}] with labels=arrays['y_train'], {SEVERAL}"
        with refused(f"the mapping holds several sets: {name}, y_train. {pass_one}"):
            separated(sets)
    assert separated({"train": PIXELS, "y_train": LABELS}).labels is None


def test_files_that_are_not_read(tmp_path):
    other = tmp_path / "a.H5"
    other.touch()
    message = (
        "FILE: files .h5 are not read here; open it in Python and pass its array of images, or save that with "
        "numpy.savez(FILE, images=..., labels=...) as .npz"
    ).replace("savez(FILE", "savez(@")
    with refused(message.replace("FILE", str(other)).replace("@", "FILE")):
        separated(other)
    objects = npz(tmp_path, images=np.array([{}, []], dtype=object))
    with pytest.raises(
        ValueError, match=r"a\.NPZ cannot be read as arrays \(.*; save arrays of numbers with numpy\.savez$"
    ):
        separated(objects)
    with pytest.raises(
        ValueError, match=r"a\.pt cannot be read as tensors \(.*; save a tensor, or a dict of them, with t"
    ):
        separated(pt(tmp_path, {"images": Path}))
