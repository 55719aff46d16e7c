"""Every kind of dataset opens as the same images, labels, classes and fingerprint."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tllib_ancon.data.open import as_domain, open_domain

CLASSES = ["bike", "bus", "car"]
COUNT = 12


def image(number):
    """The red channel tells which one it is."""
    pixels = np.random.default_rng(number).integers(0, 256, (20, 24, 3), dtype=np.uint8)
    pixels[..., 0] = 20 * number
    return Image.fromarray(pixels)


def write(folder):
    """One folder a class; the class of image i is i // 4."""
    names = []
    for number in range(COUNT):
        name = f"{CLASSES[number // 4]}/{number:02d}.png"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        image(number).save(folder / name)
        names.append(name)
    return names


def image_list(root):
    names = write(root / "web")
    (root / "image_list").mkdir(exist_ok=True)
    lines = (f"web/{name} {number // 4}\n" for number, name in enumerate(names))
    (root / "image_list" / "web.txt").write_text("".join(lines))
    (root / "image_list" / "classes.txt").write_text("\n".join(CLASSES))
    return open_domain(root, "ImageList", ["web"])


def hugging_face(root):
    datasets = pytest.importorskip("datasets", reason="the extra huggingface is not installed")
    names = write(root / "files")
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=CLASSES))
    contents = [(root / "files" / name).read_bytes() for name in names]
    images = [{"bytes": content, "path": None} for content in contents]
    columns = {"image": images, "label": [number // 4 for number in range(COUNT)]}
    if not (root / "saved").is_dir():
        datasets.Dataset.from_dict(columns, features=features).save_to_disk(root / "saved")
    return open_domain(root, "hf:saved", ["."])


class Pairs:
    """A map-style dataset of (image, class)."""

    def __len__(self):
        return COUNT

    def __getitem__(self, number):
        return image(number), number // 4


def python(root):
    return as_domain(Pairs(), labels=[number // 4 for number in range(COUNT)])


KINDS = [image_list, hugging_face, python]


@pytest.mark.parametrize("opened", KINDS)
def test_a_domain_is_its_images_labels_and_classes(tmp_path, opened):
    domain = opened(tmp_path)
    numbers = list(range(COUNT))
    assert len(domain) == COUNT
    names = ["0", "1", "2"] if opened is python else CLASSES
    assert list(domain.classes) == names
    assert domain.num_classes == 3
    assert domain.positions.tolist() == numbers
    for number in numbers:
        assert np.array_equal(np.asarray(domain.image(number)), np.asarray(image(number)))
    assert domain.labels.dtype == np.int64
    assert domain.labels.tolist() == [number // 4 for number in numbers]
    assert (domain.paths is None) == (opened in (hugging_face, python))
    if domain.paths is not None:
        stems = [Path(path).stem for path in domain.paths]
        assert stems == [f"{number:02d}" for number in numbers]
    some = domain.subset([9, 4, 4]).subset(torch.tensor([1, 0]))
    assert len(some) == 2
    assert some.positions.tolist() == [4, 9]
    corners = [some.image(index).getpixel((0, 0)) for index in range(2)]
    assert [red for red, _, _ in corners] == [80, 180]
    assert some.labels.tolist() == [1, 2]
    assert domain.without_labels().labels is None
    assert len(domain.subset([])) == 0
