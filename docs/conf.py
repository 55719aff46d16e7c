"""The documentation site: `sphinx-build -W docs docs/_build`. Nothing is fetched from the network."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH", "")]))

import generate  # noqa: E402

from tllib_ancon import __version__  # noqa: E402

project, author = "tllib_ancon", "tllib_ancon contributors"
copyright = f"2026, {author}"
version = release = __version__
html_title = f"tllib_ancon {release}"
html_theme = "furo"
smartquotes = False  # two dashes begin a flag

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "sg_execution_times.rst", "gallery/**/*.ipynb", "gallery/**/*.py", "gallery/**/*.md5"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_use_ivar = True
napoleon_custom_sections = [("Inputs", "params_style"), ("Outputs", "returns_style"), "Shape", "Source"]
suppress_warnings = ["config.cache", "myst.header"]
sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "ExampleTitleSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "plot_gallery": "True",
}


def setup(app):
    generate.write(HERE / "generated")  # before the gallery's examples register methods of their own
    app.connect("source-read", generate.link_results)
