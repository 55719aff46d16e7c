"""Which toolkit is found, and where it says that the images of a dataset are."""

import sys
import types
from importlib.machinery import ModuleSpec

import pytest
import torch

from tests.toolkit.conftest import requires_tllib
from tllib_ancon.errors import UserError
from tllib_ancon.toolkit import toolkit as toolkits
from tllib_ancon.toolkit.toolkit import find

PAPERS = {
    "Office31": (["A", "D", "W"], 31),
    "OfficeHome": (["Ar", "Cl", "Pr", "Rw"], 65),
    "VisDA2017": (["Synthetic", "Real"], 12),
    "DomainNet": (["c", "i", "p", "q", "r", "s"], 345),
}


def test_the_best_toolkit_there_is_found(monkeypatch) -> None:
    assert find().name == ("tllib" if toolkits.is_installed("tllib") else "dalib")
    with pytest.raises(UserError, match="did you mean 'dalib'"):
        find("dalip")
    monkeypatch.setattr(toolkits, "is_installed", lambda name: name == "dalib")
    assert find().name == "dalib"
    monkeypatch.setattr(toolkits, "is_installed", lambda name: False)
    with pytest.raises(UserError, match=r"git\+https://github.com/thuml.*pip install dalib==0.2 prettytable qpsolvers"):
        find()
    with pytest.raises(UserError, match=r"tllib cannot be found.*c4aa59eb565650a552b809411601d0589efbbfe4"):
        find("tllib")


def test_a_folder_of_that_name_is_not_the_package_and_finding_does_not_import(tmp_path, monkeypatch) -> None:
    (tmp_path / "tllib").mkdir()
    monkeypatch.delitem(sys.modules, "tllib", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert not toolkits.is_installed("tllib")
    module = types.ModuleType("tllib")
    module.__spec__ = ModuleSpec("tllib", loader=None, origin="somewhere")
    monkeypatch.setitem(sys.modules, "tllib", module)
    assert toolkits.is_installed("tllib")


@pytest.mark.parametrize(
    "content",
    ["import a_library_that_is_not_there", "x = 1", "raise SyntaxError('another program')", "1 / 0", "def"],
)
def test_a_file_of_another_program_is_named(tmp_path, monkeypatch, content) -> None:
    (tmp_path / "tllib.py").write_text(content + "\n")
    for name in ["tllib", *sys.modules]:
        if name.partition(".")[0] == "tllib":
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))  # put back, or removed, at the end
            del sys.modules[name]
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError) as refusal:
        find()
    assert f"tllib ({tmp_path / 'tllib.py'}) does not import as the toolkit" in str(refusal.value)
    assert ("a_library_that_is_not_there" in str(refusal.value)) == ("library" in content)
    assert "\n" not in str(refusal.value)


# Datasets


def test_the_datasets_of_the_paper(toolkit) -> None:
    for name, (domains, num_classes) in PAPERS.items():
        table = toolkit.dataset(name)
        assert len(table.classes) == num_classes
        assert set(domains) <= set(table.lists)
        assert all("image_list" in table.folders[code] for code in domains)
        assert table.root_of == {}
    lists = toolkit.dataset("VisDA2017").lists  # in both spellings
    assert lists["Synthetic"] == lists["T"] == {"all": "image_list/train.txt"}
    assert lists["Real"] == lists["V"] == {"all": "image_list/validation.txt"}
    lists = toolkit.dataset("DomainNet").lists
    assert lists["q"] == {"train": "image_list/quickdraw_train.txt", "test": "image_list/quickdraw_test.txt"}
    assert all(toolkit.dataset(name).lists for name in toolkit.dataset_names)
    with pytest.raises(UserError, match="did you mean 'OfficeHome'"):
        toolkit.dataset("Officehome")


@requires_tllib
def test_both_toolkits_give_the_same_table() -> None:
    for name in PAPERS:
        assert find("tllib").dataset(name) == find("dalib").dataset(name)


@requires_tllib
def test_digits_lie_in_one_folder_a_domain_and_pacs_counts_from_one(tmp_path) -> None:
    table = find("tllib").dataset("Digits")
    assert table.lists["MNIST"] == {"train": "image_list/mnist_train.txt", "test": "image_list/mnist_test.txt"}
    assert table.lists["SVHNRGB"] == {"all": "image_list/svhn_balanced.txt"}
    assert table.root_of["USPSRGB"] == "USPSRGB"
    assert len(table.classes) == 10
    (tmp_path / "MNIST" / "image_list").mkdir(parents=True)
    missing = table.missing(tmp_path, ["MNIST", "USPS"])
    assert missing == ["MNIST/mnist_train_image", "USPS/image_list", "USPS/usps_train_image"]
    table = find("tllib").dataset("PACS")
    assert (table.first_label, table.lists["P"]) == (1, {"all": "image_list/photo_all.txt"})


def test_missing_names_what_tllib_would_download(tmp_path, toolkit) -> None:
    for folder in ("image_list", "amazon", "webcam"):
        (tmp_path / folder).mkdir()
    assert toolkit.dataset("Office31").missing(tmp_path, ["A", "W"]) == ["dslr"]


# Networks


def test_resnets_say_whether_they_pool(toolkit) -> None:
    network = toolkit.create_backbone("resnet18")
    features = network(torch.randn(2, 3, 64, 64))
    assert "resnet50" in toolkit.backbone_names()
    assert network.out_features == 512
    assert (features.ndim == 2) == (toolkit.name == "dalib")
    with pytest.raises(UserError, match="did you mean 'resnet18'"):
        toolkit.create_backbone("resnet-18")


@requires_tllib
@pytest.mark.parametrize(("name", "shape"), [("lenet", (2, 1, 28, 28)), ("dtn", (2, 3, 32, 32))])
def test_digit_networks_are_flat(name, shape) -> None:
    network = find("tllib").create_backbone(name)
    assert network(torch.randn(shape)).shape == (2, network.out_features)


def test_dalib_says_what_tllib_has() -> None:
    dalib = find("dalib")
    for name in ("Digits", "PACS", "ImageNetR"):
        with pytest.raises(UserError, match=r"pip install --no-deps .*Transfer-Learning-Library@c4aa59eb"):
            dalib.dataset(name)
    with pytest.raises(UserError, match="lenet is in tllib but not in dalib"):
        dalib.create_backbone("lenet")
