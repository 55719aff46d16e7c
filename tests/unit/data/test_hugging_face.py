"""Datasets of Hugging Face give the same images, labels and classes as files, from disk and from memory."""

import io
import socket

import pytest
from PIL import Image

from tests.support.refusals import one_line
from tllib_ancon.data.open import as_domain, open_domain

datasets = pytest.importorskip("datasets", reason="the extra huggingface is not installed")
NAMES = ["bike", "bus", "car"]


def images(count=6):
    return [Image.new("RGB", (8, 6), (10 * number, 0, 0)) for number in range(count)]


def labelled():
    features = datasets.Features({"picture": datasets.Image(), "kind": datasets.ClassLabel(names=NAMES)})
    return datasets.Dataset.from_dict({"picture": images(), "kind": [0, 1, 2, 0, 1, 2]}, features=features)


@pytest.fixture
def saved(tmp_path):
    datasets.DatasetDict({"train": labelled(), "test": labelled().select([4, 1])}).save_to_disk(tmp_path / "saved")
    return tmp_path


def test_splits_of_a_dataset_on_disk(saved):
    domain = open_domain(saved, "hf:saved", ["test", "train"])
    assert len(domain) == 8
    assert domain.classes == NAMES
    assert domain.paths is None
    assert domain.labels.tolist() == [1, 1, 0, 1, 2, 0, 1, 2]
    assert [domain.image(index).getpixel((0, 0))[0] for index in range(8)] == [40, 10, 0, 10, 20, 30, 40, 50]
    assert open_domain(saved, f"hf:{saved / 'saved'}", ["train"]).fingerprint() == (
        open_domain(saved, "hf:saved", ["train"]).fingerprint()
    )
    assert domain.fingerprint() != open_domain(saved, "hf:saved", ["train", "test"]).fingerprint()


def test_a_folder_of_files_that_the_library_reads(tmp_path, monkeypatch):
    labelled().save_to_disk(tmp_path / "one")
    assert len(open_domain(tmp_path, "hf:one", ["train"])) == 6  # it has no splits
    labelled().to_parquet(tmp_path / "data" / "train.parquet")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    assert len(open_domain(tmp_path, "hf:data", ["train"])) == 6


@pytest.mark.parametrize(
    ("labels", "expected"), [([2, 0], (["0", "1", "2"], [2, 0])), ([-1, 0], ([], None)), ([None, 0], ([], None))]
)
def test_labels_of_every_kind(labels, expected):
    domain = as_domain(datasets.Dataset.from_dict({"image": images(2), "label": labels}))
    assert (list(domain.classes), None if domain.labels is None else domain.labels.tolist()) == expected


def test_an_image_that_cannot_be_decoded_is_named(tmp_path):
    broken = io.BytesIO()
    images(1)[0].save(broken, "PNG")
    items = [{"bytes": broken.getvalue(), "path": None}, {"bytes": b"no image", "path": None}]
    dataset = datasets.Dataset.from_dict({"image": items}, features=datasets.Features({"image": datasets.Image()}))
    dataset.save_to_disk(tmp_path / "one")
    with one_line(r"hf:.*one \., image 1 is no .*`skip_corrupt=True`"):
        open_domain(tmp_path, "hf:one", ["."]).image(1)
    left = open_domain(tmp_path, "hf:one", ["."], skip_corrupt=True)
    assert left.positions.tolist() == [0]


def test_nothing_is_downloaded_unless_allowed(tmp_path, monkeypatch):
    def connect(*_):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)
    message = r"hf:nobody/nothing cannot be read as a dataset .*`allow_download=True` asks the hub"
    with one_line(message):
        open_domain(tmp_path, "hf:nobody/nothing", ["train"])
    assert not datasets.config.HF_HUB_OFFLINE
