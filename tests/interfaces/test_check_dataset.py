"""What ``tllib-ancon check`` says of a folder, and its exit status: 0 all is there, 1 something is not, 2 bad usage."""

import pytest

from tests.support.domains_on_disk import CLASSES, write_domains
from tests.support.json_files import read_json
from tests.support.layouts import write_classes, write_list
from tllib_ancon.cli.main import main


@pytest.fixture
def check(tmp_path, capsys):
    def run(data, *words):
        status = main(["check", str(tmp_path), "-d", data, "-j", "0", *words])
        return status, "".join(capsys.readouterr())

    return run


def pictures(root, *places):
    for place in places:
        write_classes(root / place, CLASSES, images=2)


LAYOUTS = {
    "ImageList": write_domains,
    "ImageFolder": lambda root: pictures(root, "web", "photos"),
    "Folder": lambda root: pictures(root, "web/of/any/depth", "photos"),
    "CorruptedImages": lambda root: pictures(root, "frost/1", "fog/5"),
    "DomainNet": lambda root: [write_list(root, f"quickdraw_{split}", 6, classes=345) for split in ("train", "test")],
}
SHOWN = {
    "ImageList": ("bright image_list/bright.txt 60 images", "dark image_list/dark.txt 48 images"),
    "ImageFolder": ("photos photos 6 images", "web web 6 images"),
    "Folder": ("photos photos 6 images, without labels", "web web 6 images, without labels"),
    "CorruptedImages": ("fog/5 fog/5 6 images", "frost/1 frost/1 6 images"),
    "DomainNet": ("q train image_list/quickdraw_train.txt 6 images", "q test image_list/quickdraw_test.txt 6 images"),
}


@pytest.mark.parametrize("data", LAYOUTS)
def test_each_layout_complete_and_with_a_damaged_and_a_missing_picture(data, check, tmp_path):
    LAYOUTS[data](tmp_path)
    some = ("-t", "q") if data == "DomainNet" else ()
    status, said = check(data, *some)
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert status == 0
    assert lines[-2] == "complete"
    assert tuple(lines[:2]) == SHOWN[data]
    paths = sorted(tmp_path.rglob("*"))
    damaged = next(path for path in paths if path.suffix in (".png", ".jpg", ".JPEG"))
    damaged.write_bytes(b"no image")
    status, said = check(data, *some)
    assert status == 1
    assert said.splitlines()[-1] == "incomplete"
    assert f"images cannot be read; image {damaged}" in said
    assert check(data, *some, "--no-decode")[0] == 0
    if "image_list" in SHOWN[data][0]:
        damaged.unlink()
        status, said = check(data, *some, "--no-decode")
        assert status == 1
        assert str(damaged) in said


def test_a_dataset_of_tllib_lacks_a_domain_and_images(check, tmp_path):
    for name in ("amazon", "webcam"):
        write_list(tmp_path, name, 6, classes=31)
    status, said = check("Office31", "--json", str(tmp_path / "found.json"))
    assert status == 1
    for expected in (
        "6 of 2,817 images",
        "missing or wrong: A: 6 images are listed, and Office31 has 2817",
        "missing or wrong: D: ",
        "image_list/dslr.txt not found; missing folders: dslr",
        f"Office31 must lie in {tmp_path} as image_list/amazon.txt, image_list/dslr.txt, image_list/webcam.txt",
        "nothing was downloaded",
    ):
        assert expected in said
    found = read_json(tmp_path / "found.json")
    assert [part["images"] for part in found["parts"]] == [6, None, 6]
    assert len(found["classes"]) == 31
    assert len(found["problems"]) == 3
