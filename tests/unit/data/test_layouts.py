"""A layout is one file: what it registers reaches names, opening, check, and the guess for a root."""

from pathlib import Path

import pytest

from tests.support.layouts import write_picture
from tests.support.refusals import one_line
from tllib_ancon.cli.main import parser_of
from tllib_ancon.data.completeness import check_dataset
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.layout import LAYOUTS, FolderLayout, layout
from tllib_ancon.data.layouts import default_resizing, layout_names, missing_dataset
from tllib_ancon.data.open import open_domain


@pytest.fixture
def suffixes():
    @layout
    class Suffixes(FolderLayout):
        """The class of an image is its suffix."""

        name = "Suffixes"
        help = "images of any suffix"

        def open(self, opening):
            paths = opening.tree.images(opening.tree.domain(opening.codes[0]))
            classes = sorted({Path(path).suffix for path in paths})
            labels = [classes.index(Path(path).suffix) for path in paths]
            return Domain.of_files("suffixes", paths, classes, labels, str(opening.root))

        def fits(self, root):
            return (root / "suffixes.txt").is_file()

    yield
    del LAYOUTS["Suffixes"]


@pytest.mark.usefixtures("suffixes")
def test_a_new_layout_needs_its_own_registration_alone(tmp_path):
    for name in ("b.png", "a.jpg", "c.png"):
        write_picture(tmp_path / name, 0, seed=0)
    (tmp_path / "suffixes.txt").touch()
    domain = open_domain(tmp_path, "Suffixes", ["."])
    assert (list(domain.classes), domain.labels.tolist()) == ([".jpg", ".png"], [0, 1, 1])
    checked = check_dataset(tmp_path, "Suffixes")
    assert [(part.domain, part.images, part.labelled) for part in checked.parts] == [(".", 3, True)]
    assert not checked.problems
    assert default_resizing("Suffixes") == "keep-ratio"
    assert "Suffixes" in str(missing_dataset(tmp_path))
    assert "Suffixes: images of any suffix." in " ".join(parser_of("adapt").format_help().split())
    with one_line("did you mean 'Suffixes'"):
        open_domain(tmp_path, "Suffxes", ["."])


def test_domains_are_compared_with_each_other(tmp_path):
    for path in ("one/bike/a.png", "one/bus/a.png", "two/bike/a.png", "two/car/a.png"):
        write_picture(tmp_path / path, 0, seed=0)
    checked = check_dataset(tmp_path, "ImageFolder")
    assert [(part.domain, part.images) for part in checked.parts] == [("one", 2), ("two", 2)]
    of_class_folders = check_dataset(tmp_path / "one", "ImageFolder")
    assert [(part.domain, part.images) for part in of_class_folders.parts] == [(".", 2)]
    lists = "bike, car instead of bike, bus"
    advice = "rename or remove the folders that differ"
    assert checked.problems == [
        f"{tmp_path}/two has other class folders than {tmp_path}/one, 'car' first: {lists}; {advice}"
    ]
    (tmp_path / "two" / "car" / "b.png").write_text("no image")
    (problem,) = check_dataset(tmp_path, "ImageFolder", ["two"], skip_corrupt=True).problems
    assert problem.startswith(f"two: 1 images cannot be read; image {tmp_path}/two/car/b.png: cannot be decoded")


def test_names_of_layouts_are_unique_and_general_ones_come_first():
    names = layout_names()
    assert len(set(names)) == len(names)
    assert names.index("ImageList") < names.index("Office31")
    assert "hf:NAME_OR_PATH" in names
