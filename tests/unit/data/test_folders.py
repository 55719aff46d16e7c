"""Class folders give torchvision's images and labels, corruptions those of ImageNet-C, and a wrong folder is named."""

import pytest
from PIL import Image
from timm.data.imagenet_info import ImageNetInfo
from torchvision.datasets import ImageFolder

from tests.support.layouts import write_classes
from tests.support.refusals import REFUSED, refused
from tests.unit.data.conftest import touch
from tllib_ancon.data.open import as_domain, open_domain

pytestmark = pytest.mark.posix

WNIDS = ["n03014705", "n01440764", "n02979186"]


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


def test_domains_are_joined_and_keep_the_names_of_their_folders(root):
    domain = open_domain(root, "ImageFolder", ["dslr", "web"])
    assert domain.name == "dslr+web"
    assert len(domain) == 8
    assert domain.labels.tolist() == [0, 1, 0, 0, 0, 0, 1, 1]
    domain = open_domain(root, "ImageFolder", ["dslr"], classes=["car", "bus", "bike"])
    assert domain.classes == ["bike", "bus"]  # the order of a model's classes is a matter of ClassMap
    assert domain.labels.tolist() == [0, 1]


def test_any_tree_without_labels(root):
    domain = open_domain(root, "Folder", ["."])
    assert len(domain) == 8
    assert domain.labels is None
    assert domain.classes == []
    assert list(domain.paths) == sorted(domain.paths, key=lambda path: path.rsplit("/", 1))
    assert open_domain(root, "Folder", ["dslr"], classes=["a", "b"]).classes == ["a", "b"]


LEADS_OUTSIDE = "leads outside the dataset root; pass `allow_outside_root=True` to accept it"
RENAME = "rename or remove the folders that differ"


@pytest.mark.parametrize(("dataset", "code", "message"), REFUSED["folders"])
def test_what_cannot_be_opened_says_why(root, dataset, code, message):
    touch(root, "cases/Bike/a.png", "cases/bike/b.png", "names/bike/a.png", "names/bike/A.PNG", "hidden/bike/a.png")
    touch(root, "gone/bike/a.png", "round/bike/a.png", "nested/dslr/bike/a.png")
    (root / "empty").mkdir()
    (root / "hidden" / ".ipynb_checkpoints").mkdir()
    (root / "gone" / "bike" / "gone.png").symlink_to(root / "nothing.png")
    (root / "round" / "bike" / "round").symlink_to(root / "round")
    with refused(message, ROOT=root):
        open_domain(root, dataset, [code])


def test_folders_of_other_names_are_refused_with_both_lists(root):
    touch(root, "dslr/car/a.png")
    lists = "bike, bus, car instead of bike, bus"
    with refused(f"ROOT/dslr has other class folders than ROOT/web, 'car' first: {lists}; {RENAME}", ROOT=root):
        open_domain(root, "ImageFolder", ["web", "dslr"])
    lists = "bike, bus instead of bike, bus, car"
    with refused(f"ROOT/web has other class folders than ROOT/dslr, 'car' first: {lists}; {RENAME}", ROOT=root):
        open_domain(root, "ImageFolder", ["dslr", "web"])
    assert len(open_domain(root, "ImageFolder", ["dslr", "web"], classes=["bike", "bus", "car"])) == 9


def test_links_that_lead_outside_the_root(root, tmp_path_factory):
    outside = touch(tmp_path_factory.mktemp("outside"), "c.png")
    (root / "dslr" / "bike" / "link").symlink_to(outside)
    for dataset in ("ImageFolder", "Folder"):
        with refused(f"ROOT/dslr/bike/link {LEADS_OUTSIDE}", ROOT=root):
            open_domain(root, dataset, ["dslr"])
        assert len(open_domain(root, dataset, ["dslr"], allow_outside=True)) == 3
    assert len(as_domain(root / "dslr", allow_outside=True)) == 3
    (root / "dslr" / "bike" / "link").unlink()
    (root / "dslr" / "bike" / "link.png").symlink_to(outside / "c.png")
    with refused(f"ROOT/dslr/bike/link.png {LEADS_OUTSIDE}", ROOT=root):
        open_domain(root, "ImageFolder", ["dslr"])
    with refused(f"ROOT/../{outside.name} {LEADS_OUTSIDE}", ROOT=root):
        open_domain(root, "ImageFolder", [f"../{outside.name}"])


def test_links_that_lead_nowhere_or_outside_are_skipped_with_the_reason(root, tmp_path_factory):
    outside = touch(tmp_path_factory.mktemp("outside"), "c.png")
    folder = root / "dslr" / "bike"
    Image.new("RGB", (4, 4)).save(folder / "a.png")
    (folder / "loop.png").symlink_to("loop.png")
    (folder / "out.png").symlink_to(outside / "c.png")
    (folder / "round").symlink_to(root / "dslr")
    opened = open_domain(root, "Folder", ["dslr"], skip_corrupt=True)
    assert list(opened.paths) == [str(folder / "a.png")]
    for why in ("loop.png", "out.png leads outside", "round is a link to a folder"):
        assert [reason for reason in opened.skipped if why in reason]


def test_files_that_are_no_images_are_counted_and_hidden_ones_left_out(root):
    touch(root, "dslr/bike/a.heic", "dslr/bike/README", "dslr/.cache/a.png", "dslr/bike/._a.png")
    before = len(open_domain(root, "Folder", ["web"]))
    assert before
    opened = open_domain(root, "Folder", ["dslr"])
    assert opened.ignored == "2 files ignored (.heic, no suffix)"
    assert not [path for path in opened.paths if "/." in path]


@pytest.fixture
def few_classes(tmp_path):
    """Two images of three ImageNet classes, in two corruptions."""
    for code in ("frost/5", "fog/1"):
        write_classes(tmp_path / code, WNIDS, images=2)
    return tmp_path


def test_a_part_of_the_classes_has_the_labels_of_all(few_classes):
    (few_classes / "fog/1/n01440764/list.txt").touch()
    domain = open_domain(few_classes, "ImageNetC", ["fog/1"])
    assert domain.num_classes == 1000
    assert domain.labels.tolist() == [0, 0, 482, 482, 492, 492]
    assert domain.ignored == "1 file ignored (.txt); 997 of 1000 classes have no folder"
    assert open_domain(few_classes, "CorruptedImages", ["frost/5"]).ignored == ""


def test_the_layout_of_imagenet_c(tmp_path):
    names = write_classes(tmp_path / "frost/5", ["n01440764"], images=1)
    for name in sorted(ImageNetInfo("imagenet-1k").label_names())[1:]:
        (tmp_path / "frost/5" / name).mkdir()
        (tmp_path / "frost/5" / name / "a.JPEG").hardlink_to(tmp_path / "frost/5" / names[0])
    (tmp_path / "frost/5/n01440764/readme.txt").write_text("no image")
    assert open_domain(tmp_path, "ImageNetC", ["frost/5"]).labels.tolist() == list(range(1000))
    write_classes(tmp_path / "contrast/2", ["mug", "bike"], images=1)
    advice = "for other classes pass `data` CorruptedImages"
    with refused(f"ROOT: bike is no WordNet id of ImageNet's 1000 classes; {advice}", ROOT=tmp_path):
        open_domain(tmp_path, "ImageNetC", ["contrast/2"])


def test_a_misspelt_corruption(few_classes):
    choices = "did you mean 'frost/5'? Valid names: fog/1, frost/5"
    with refused(f"unknown domain of ROOT: 'frst/5'; {choices}", ROOT=few_classes):
        open_domain(few_classes, "ImageNetC", ["frst/5"])


def test_corruptions_that_are_not_there(few_classes):
    root = few_classes / "root"
    root.mkdir()
    layout = "the layout of corrupted images is corruption/severity/class/*. Name a domain that is there"
    with refused(f"ROOT does not hold frost/5; {layout}", ROOT=root):
        open_domain(root, "ImageNetC", ["frost/5"])


def test_corruptions_behind_links_that_lead_outside_the_root(few_classes, tmp_path):
    root = tmp_path / "root"
    write_classes(root / "frost/5", ["bike"], images=1)
    (root / "frost/5/bike/link.JPEG").symlink_to(tmp_path / "fog" / "1" / WNIDS[0] / "000.JPEG")
    with refused(f"ROOT/frost/5/bike/link.JPEG {LEADS_OUTSIDE}", ROOT=root):
        open_domain(root, "CorruptedImages", ["frost/5"])
    assert open_domain(root, "CorruptedImages", ["frost/5"], allow_outside=True).num_classes == 1
