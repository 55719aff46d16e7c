"""A user's own images have the interface of TLLib's datasets; a package of a few lines stands in for TLLib."""

import pickle
import sys
import textwrap

import pytest

from tests.support.layouts import write_classes, write_list
from tests.support.refusals import one_line
from tests.support.tllib import loaded_modules
from tllib_ancon import scripts
from tllib_ancon.runtime.errors import UserError

IMAGE_LIST = """
    from torchvision.datasets import VisionDataset

    class ImageList(VisionDataset):
        def __init__(self, root, classes, data_list_file, transform=None, target_transform=None):
            super().__init__(root, transform=transform, target_transform=target_transform)
            with open(data_list_file) as lines:
                self.samples = [(path, int(label)) for path, label in map(str.split, lines)]
            self.classes = classes

        def __len__(self):
            return len(self.samples)

        def __getitem__(self, index):
            path, target = self.samples[index]
            return self.transform(self.loader(path)), target

        @property
        def num_classes(self):
            return len(self.classes)
    """
VARIANT = """
    from tllib.vision.datasets import ImageList, Office31

    def default_{}(dataset_class, *options):
        raise NotImplementedError(dataset_class.__name__)
    """
FILES = {
    "tllib/__init__.py": "",
    "tllib/vision/__init__.py": "",
    "tllib/vision/datasets/__init__.py": """
        from typing import Any
        from .imagelist import ImageList

        class Office31(ImageList):
            pass
        """,
    "tllib/vision/datasets/imagelist.py": IMAGE_LIST,
    "tllib/vision/datasets/partial/__init__.py": VARIANT.format("partial"),
    "tllib/vision/datasets/openset/__init__.py": VARIANT.format("open_set"),
}


def _forget_tllib():
    for name in loaded_modules():
        del sys.modules[name]


@pytest.fixture
def datasets(tmp_path, monkeypatch):
    """``tllib.vision.datasets`` of the stand-in, as a user's own script gets it."""
    for name, text in FILES.items():
        path = tmp_path / "packages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "tllib"}
    _forget_tllib()
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    scripts.enable()
    import tllib.vision.datasets

    yield tllib.vision.datasets
    _forget_tllib()
    sys.modules.update(before)


@pytest.fixture
def photos(tmp_path):
    root = tmp_path / "photos"
    write_classes(root / "summer", ["class_1", "class_2", "class_10"], images=2)
    write_classes(root / "winter", ["class_1", "class_2", "class_10"], images=3)
    write_classes(root / "part", ["class_2"], images=2)
    write_classes(root / "more", ["class_2", "owl", "yak"], images=1)
    return root


def _size(image):
    return image.size


def opened(dataset_class, root, task):
    """As TLLib's scripts open a domain."""
    return dataset_class(root=str(root), task=task, download=True, transform=_size)


def test_a_folder_of_domains_has_the_interface_of_a_dataset(datasets, photos):
    source = opened(datasets.ImageFolder, photos, "summer")
    target = opened(datasets.ImageFolder, photos, "winter")
    assert isinstance(source, datasets.ImageList)
    assert source.num_classes == 3
    assert source.classes == ["class_1", "class_10", "class_2"]
    assert target.classes == source.classes
    assert source.class_to_idx["class_10"] == 1
    assert len(source) == 6
    assert len(target) == 9
    assert source[0] == ((24, 24), 0)
    assert target.targets == [0] * 3 + [1] * 3 + [2] * 3
    assert [label for _, label in target.samples] == target.targets
    assert pickle.loads(pickle.dumps(source)).samples == source.samples  # a spawned loading process gets it


def test_lists_and_corrupted_images(datasets, tmp_path):
    write_list(tmp_path, "day", images=6, classes=3)
    write_list(tmp_path, "night", images=4, classes=2)
    day = opened(datasets.ImageList, tmp_path, "day")
    night = opened(datasets.ImageList, tmp_path, "night")
    assert day.classes == ["0", "1", "2"]
    assert night.classes == day.classes
    assert night.targets == [0, 1, 0, 1]


def test_a_partial_target_has_some_of_the_classes(datasets, photos):
    from tllib.vision.datasets import partial

    source = opened(partial.ImageFolder, photos, "summer")
    target = opened(partial.default_partial(partial.ImageFolder), photos, "part")
    assert target.classes == source.classes
    assert target.targets == [2, 2]
    assert target.partial_classes == ["class_2"]
    assert target.partial_classes_idx == [2]
    with one_line(r"photos/more has other class folders than .*photos/summer, 'owl' first"):
        opened(partial.default_partial(partial.ImageFolder), photos, "more")
    with pytest.raises(NotImplementedError, match="Office31"):
        partial.default_partial(partial.Office31)


def test_other_classes_of_an_open_set_target_are_one(datasets, photos):
    from tllib.vision.datasets import openset

    with one_line("open the source first"):
        opened(openset.default_open_set(openset.ImageFolder, False), photos, "more")
    source = opened(openset.default_open_set(openset.ImageFolder, True), photos, "summer")
    target = opened(openset.default_open_set(openset.ImageFolder, False), photos, "more")
    assert source.classes == ["class_1", "class_10", "class_2", "unknown"]
    assert target.classes == source.classes
    assert target.targets == [2, 3, 3]
    with pytest.raises(NotImplementedError, match="Office31"):
        openset.default_open_set(openset.Office31, True)


def test_domains_that_a_script_cannot_train_on(datasets, photos):
    source = opened(datasets.ImageFolder, photos, "summer")
    assert source.classes == ["class_1", "class_10", "class_2"]
    with pytest.raises(UserError) as error:
        opened(datasets.ImageFolder, photos, "part")
    assert str(error.value) == (
        f"{photos}/part has other class folders than {photos}/summer, 'class_1' first: class_2 instead of class_1, "
        "class_10, class_2; rename or remove the folders that differ"
    )
    with one_line(r"unknown domain of .*: 'autumn'"):
        opened(datasets.ImageFolder, photos, "autumn")
    (photos / "image_list").mkdir()
    (photos / "image_list" / "plain.txt").write_text("summer/class_1/000.JPEG\n")
    (photos / "image_list" / "classes.txt").write_text("class_1\n")
    with one_line("the images of plain have no labels"):
        opened(datasets.ImageList, photos, "plain")
