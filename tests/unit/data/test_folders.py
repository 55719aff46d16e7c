"""Class folders give torchvision's images and labels, and a wrong folder is named."""

import pytest
from PIL import Image
from torchvision.datasets import ImageFolder

from tests.support.refusals import REFUSED, refused
from tests.unit.data.conftest import touch
from tllib_ancon.data.open import open_domain


@pytest.fixture
def root(tmp_path):
    names = ("bus/a.png", "bus/B.JPG", "bike/z/1.webp", "bike/a-b/2.tif", "bike/a/3.ppm", "bike/0.jpeg", "bike/x.txt")
    return touch(tmp_path, *(f"web/{name}" for name in names), "dslr/bike/a.png", "dslr/bus/b.png")


def test_images_order_and_labels_are_torchvisions(root):
    theirs = ImageFolder(root / "web")
    for domain in (open_domain(root, "ImageFolder", ["web"]), open_domain(root / "web", "ImageFolder", ["."])):
        assert list(zip(domain.paths, domain.labels.tolist(), strict=True)) == theirs.samples
        assert domain.classes == theirs.classes
        assert domain.name == "web"


def test_any_tree_without_labels(root):
    domain = open_domain(root, "Folder", ["."])
    assert len(domain) == 8
    assert domain.labels is None
    assert not domain.classes
    assert list(domain.paths) == sorted(domain.paths, key=lambda path: path.rsplit("/", 1))


LEADS_OUTSIDE = "leads outside the dataset root; give a folder that holds all images, or copy them into it"
RENAME = "rename or remove the folders that differ"


@pytest.mark.parametrize(("dataset", "code", "message"), REFUSED["folders"])
def test_what_cannot_be_opened_says_why(root, dataset, code, message):
    touch(root, "cases/Bike/a.png", "cases/bike/b.png", "names/bike/a.png", "names/bike/A.PNG", "hidden/bike/a.png")
    touch(root, "gone/bike/a.png", "nested/dslr/bike/a.png")
    (root / "empty").mkdir()
    (root / "hidden" / ".ipynb_checkpoints").mkdir()
    (root / "gone" / "bike" / "gone.png").symlink_to(root / "nothing.png")
    with refused(message, ROOT=root):
        open_domain(root, dataset, [code])


def test_folders_of_other_names_are_refused_with_both_lists(root):
    touch(root, "dslr/car/a.png")
    lists = "bike, bus, car instead of bike, bus"
    with refused(f"ROOT/dslr has other class folders than ROOT/web, 'car' first: {lists}; {RENAME}", ROOT=root):
        open_domain(root, "ImageFolder", ["web", "dslr"])
    assert len(open_domain(root, "ImageFolder", ["dslr", "web"], classes=["bike", "bus", "car"])) == 9


def test_links_that_lead_outside_the_root(root, tmp_path_factory):
    outside = touch(tmp_path_factory.mktemp("outside"), "c.png")
    (root / "dslr" / "bike" / "link").symlink_to(outside)
    for dataset in ("ImageFolder", "Folder"):
        with refused(f"ROOT/dslr/bike/link {LEADS_OUTSIDE}", ROOT=root):
            open_domain(root, dataset, ["dslr"])
    (root / "dslr" / "bike" / "link").unlink()
    (root / "dslr" / "bike" / "link.png").symlink_to(outside / "c.png")
    with refused(f"ROOT/dslr/bike/link.png {LEADS_OUTSIDE}", ROOT=root):
        open_domain(root, "ImageFolder", ["dslr"])
    with refused(f"ROOT/../{outside.name} {LEADS_OUTSIDE}", ROOT=root):
        open_domain(root, "ImageFolder", [f"../{outside.name}"])


def test_links_that_lead_nowhere_are_skipped_and_a_folder_behind_several_is_read_once(root):
    folder = root / "dslr" / "bike"
    Image.new("RGB", (4, 4)).save(folder / "a.png")
    (folder / "loop.png").symlink_to("loop.png")
    (folder / "round").symlink_to(root / "dslr")
    opened = open_domain(root, "Folder", ["dslr"], skip_corrupt=True)
    assert list(opened.paths) == [str(folder / "a.png")]
    assert [reason for reason in opened.skipped if "loop.png" in reason]


def test_files_that_are_no_images_and_hidden_ones_are_left_out(root):
    touch(root, "dslr/bike/a.heic", "dslr/bike/README", "dslr/.cache/a.png", "dslr/bike/._a.png")
    opened = open_domain(root, "Folder", ["dslr"])
    assert list(opened.paths) == [str(root / "dslr/bike/a.png"), str(root / "dslr/bus/b.png")]


def test_a_domain_lies_at_any_depth_as_those_of_imagenet_c(tmp_path):
    for severity in (1, 5):
        touch(tmp_path, f"frost/{severity}/n01440764/a.JPEG", f"frost/{severity}/n01443537/a.JPEG")
    assert open_domain(tmp_path, "ImageFolder", ["frost/5"]).classes == ["n01440764", "n01443537"]
