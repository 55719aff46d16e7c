"""The documentation site: `sphinx-build docs docs/_build`. Nothing is fetched from the network."""

from __future__ import annotations

import os
import re
import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH", "")]))

import generate  # noqa: E402
from sphinx_gallery.sorting import ExplicitOrder  # noqa: E402

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
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
IN_ORDER_OF_USE = (
    *("emoji_of_another_maker", "adapt_in_six_lines", "certify", "choosing_a_checkpoint", "run_directory", "resuming"),
    *("own_loop", "own_method", "what_ancon_does"),
)
html_static_path, html_css_files = ["static"], ["pages.css"]
exclude_patterns = [
    "_build",
    "static",
    "sg_execution_times.rst",
    "gallery/**/*.ipynb",
    "gallery/**/*.py",
    "gallery/**/*.md5",
]
myst_enable_extensions = ["deflist", "dollarmath"]
repository = re.search(r'^Repository = "(.*)"', (HERE.parent / "pyproject.toml").read_text(), re.MULTILINE)
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_type_aliases = {"ArrayLike": "ArrayLike"}
napoleon_use_ivar = True
napoleon_custom_sections = [("Inputs", "params_style"), ("Outputs", "returns_style"), "Shape", "Source"]
suppress_warnings = ["config.cache", "myst.header"]
sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"^(?!.*(resuming|own_method)\.py$)",  # `.ci/checks scripts` runs them
    "within_subsection_order": ExplicitOrder([*(f"{name}.py" for name in IN_ORDER_OF_USE), "*"]),
    "default_thumb_file": str(HERE.parent / "benchmarks" / "fonts.png"),  # of an example that did not run
    "reset_modules": ("matplotlib", "generate.set_figure_style"),
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "plot_gallery": "True",
}


def setup(app):
    generate.write(HERE / "generated")  # before the gallery's examples register methods of their own
    app.connect("source-read", generate.link_evidence)
    if repository is not None:
        app.connect("source-read", partial(generate.add_badge, repository[1]))
