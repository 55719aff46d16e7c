"""A release's files agree with each other, and the package's page shows the README with its pictures."""

import re
import shutil
import subprocess
import sys

import pytest
import yaml
from packaging.requirements import Requirement

from tests.support.places import ROOT
from tests.support.project import PROJECT
from tllib_ancon import __version__

REPOSITORY = "https://github.com/somebody/something"
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}


def test_every_file_has_the_version():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__
    assert yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text())["context"]["version"] == __version__
    assert re.findall(r"^## \[(\d.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == __version__


def test_the_recipe_requires_what_the_package_requires():
    lines = PROJECT["dependencies"]
    needed = {CONDA_NAMES.get(one.name, one.name): str(one.specifier) for one in map(Requirement, lines)}
    recipe = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text())["requirements"]["run"]
    named = {name: version for name, _, version in (line.partition(" ") for line in recipe)}
    assert named.pop("python") == ">=${{ python_min }}"
    assert named == needed


def test_the_readme_names_the_oldest_versions():
    python, torch = re.findall(r"Python ≥ ([\d.]+), PyTorch ≥ ([\d.]+)", (ROOT / "README.md").read_text())[0]
    assert PROJECT["requires-python"] == f">={python}"
    assert f"torch>={torch}" in PROJECT["dependencies"]


def metadata(folder, repository):
    """What the package's page shows, with this address of the repository."""
    pytest.importorskip("setuptools", "77")
    for name in ("README.md", "setup.py", "setup.cfg", "pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "tllib_ancon", folder / "tllib_ancon", ignore=shutil.ignore_patterns("__pycache__"))
    text = re.sub("^Repository = .*\n", "", (folder / "pyproject.toml").read_text(), flags=re.MULTILINE)
    line = "" if repository is None else f'Repository = "{repository}"\n'
    (folder / "pyproject.toml").write_text(text.replace("[project.urls]\n", f"[project.urls]\n{line}"))
    code = "from setuptools.build_meta import prepare_metadata_for_build_wheel as made; made('.')"
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, capture_output=True)
    return next(folder.glob("*.dist-info/METADATA")).read_text()


def links_of(page):
    return re.findall(r"""(?:\]\(|src="|href=")([^)"\s]+)""", page)


def test_the_links_of_the_packages_page_lead_to_files_of_the_release(tmp_path):
    page = metadata(tmp_path, REPOSITORY)
    links = links_of(page)
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    ours = re.findall(rf"{re.escape(REPOSITORY)}/(raw|blob)/v{re.escape(__version__)}/([^#\n]+)", "\n".join(links))
    assert {kind for kind, _ in ours} == {"raw", "blob"}
    assert [path for _, path in ours if not (ROOT / path).exists()] == []
