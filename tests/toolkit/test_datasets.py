from __future__ import annotations

import pytest

from tests.toolkit.conftest import requires_tllib
from tllib_ancon.errors import UserError
from tllib_ancon.toolkit import find
from tllib_ancon.toolkit.datasets import DatasetTable


@pytest.mark.parametrize(
    ("name", "domains", "num_classes"),
    [
        ("Office31", ["A", "D", "W"], 31),
        ("OfficeHome", ["Ar", "Cl", "Pr", "Rw"], 65),
        ("VisDA2017", ["Synthetic", "Real"], 12),
        ("DomainNet", ["c", "i", "p", "q", "r", "s"], 345),
    ],
)
def test_both_toolkits_know_the_datasets_of_the_paper(toolkit, name, domains, num_classes):
    table = toolkit.dataset(name)
    assert name in toolkit.dataset_names()
    assert (table.name, table.domains, len(table.classes)) == (name, domains, num_classes)
    assert set(domains) <= set(table.lists) == set(table.root_of)
    assert "image_list" in table.folders
    assert set(table.root_of.values()) == {""}


@requires_tllib
@pytest.mark.parametrize("name", ["Office31", "OfficeHome", "VisDA2017", "DomainNet"])
def test_both_toolkits_give_the_same_table(name):
    assert find("tllib").dataset(name) == find("dalib").dataset(name)


def test_visda_is_understood_in_both_spellings(toolkit):
    lists = toolkit.dataset("VisDA2017").lists
    assert lists["Synthetic"] == lists["T"] == {"all": "image_list/train.txt"}
    assert lists["Real"] == lists["V"] == {"all": "image_list/validation.txt"}


def test_domainnet_has_a_list_for_each_split(toolkit):
    lists = toolkit.dataset("DomainNet").lists
    assert lists["q"] == {"train": "image_list/quickdraw_train.txt", "test": "image_list/quickdraw_test.txt"}


def test_names_hold_datasets_with_domains_only(toolkit):
    everything = {"Digits", "DomainNet", "ImageNetR", "Office31", "OfficeHome", "PACS", "VisDA2017"}
    assert set(toolkit.dataset_names()) <= everything
    for name in toolkit.dataset_names():
        assert isinstance(toolkit.dataset(name), DatasetTable)


@requires_tllib
def test_digits_lie_in_one_folder_a_domain():
    table = find("tllib").dataset("Digits")
    assert table.lists["MNIST"] == {
        "train": "image_list/mnist_train.txt",
        "test": "image_list/mnist_test.txt",
    }
    assert table.lists["SVHNRGB"] == {"all": "image_list/svhn_balanced.txt"}
    assert table.root_of["USPSRGB"] == "USPSRGB"
    assert len(table.classes) == 10


@requires_tllib
def test_pacs_counts_its_classes_from_one():
    table = find("tllib").dataset("PACS")
    assert table.first_label == 1
    assert table.lists["P"] == {"all": "image_list/photo_all.txt"}


def test_missing_names_what_tllib_would_download(tmp_path, toolkit):
    table = toolkit.dataset("Office31")
    for folder in ("image_list", "amazon", "webcam"):
        (tmp_path / folder).mkdir()
    assert table.missing(tmp_path, ["A", "W"]) == ["dslr"]


@requires_tllib
def test_missing_folders_of_digits_are_those_of_the_domains_in_use(tmp_path):
    (tmp_path / "MNIST" / "image_list").mkdir(parents=True)
    missing = find("tllib").dataset("Digits").missing(tmp_path, ["MNIST", "USPS"])
    assert missing == ["MNIST/mnist_train_image", "USPS/image_list", "USPS/usps_train_image"]


@pytest.mark.parametrize("name", ["Digits", "PACS", "ImageNetR"])
def test_dalib_says_that_tllib_has_the_dataset(name):
    with pytest.raises(UserError, match=r"pip install --no-deps .*Transfer-Learning-Library@c4aa59eb"):
        find("dalib").dataset(name)


def test_unknown_dataset(toolkit):
    with pytest.raises(UserError, match="did you mean 'OfficeHome'"):
        toolkit.dataset("Officehome")
