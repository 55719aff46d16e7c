"""A layout is one file: what it registers reaches names, opening and help."""

from pathlib import Path

import pytest

from tests.support.layouts import write_picture
from tests.support.refusals import one_line
from tllib_ancon.cli.main import parser_of
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.layout import LAYOUTS, Layout, register
from tllib_ancon.data.layouts import layout_of
from tllib_ancon.data.open import open_domain
from tllib_ancon.opening.images import open_by_settings


@pytest.fixture
def suffixes():
    class Suffixes(Layout):
        """The class of an image is its suffix."""

        name = "Suffixes"
        help = "images of any suffix"
        resizing = "keep-ratio"

        def open_domain(self, opening, code):
            paths = opening.tree.images(opening.tree.domain(code))
            classes = sorted({Path(path).suffix for path in paths})
            labels = [classes.index(Path(path).suffix) for path in paths]
            return ImageSource.of_files("suffixes", paths, classes, labels, str(opening.root))

    register(Suffixes())
    yield
    del LAYOUTS["Suffixes"]


@pytest.mark.usefixtures("suffixes")
def test_a_new_layout_needs_its_own_registration_alone(tmp_path):
    for name in ("b.png", "a.jpg", "c.png"):
        write_picture(tmp_path / name, 0, seed=0)
    domain = open_domain(tmp_path, "Suffixes", ["."])
    assert list(domain.classes) == [".jpg", ".png"]
    assert domain.labels.tolist() == [0, 1, 1]
    assert layout_of("Suffixes").resizing == "keep-ratio"
    assert "Suffixes: images of any suffix." in " ".join(parser_of("adapt").format_help().split())
    with one_line("which dataset lies in .*Suffixes"):
        open_by_settings(AdaptConfig(root=tmp_path), ["."])
    with one_line("did you mean 'Suffixes'"):
        open_domain(tmp_path, "Suffxes", ["."])
