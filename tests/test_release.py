"""A release's files agree with each other, and the package's page shows the README with its pictures."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from tllib_ancon import __version__
from tllib_ancon.config import tomllib

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}


def test_every_file_has_the_version() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__
    assert yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text())["context"]["version"] == __version__
    assert re.findall(r"^## \[(\d.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == __version__


def test_the_recipe_requires_what_the_package_requires() -> None:
    lines = PROJECT["dependencies"]
    needed = {CONDA_NAMES.get(one.name, one.name): str(one.specifier) for one in map(Requirement, lines)}
    recipe = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text())["requirements"]["run"]
    named = {name: version for name, _, version in (line.partition(" ") for line in recipe)}
    assert named.pop("python") == ">=${{ python_min }}"
    assert named == needed


def test_the_links_of_the_packages_page_lead_to_files_of_the_release(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", "77")
    for name in ("README.md", "setup.py", "setup.cfg", "pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "tllib_ancon", tmp_path / "tllib_ancon", ignore=shutil.ignore_patterns("__pycache__"))
    code = "from setuptools.build_meta import prepare_metadata_for_build_wheel as made; made('.')"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)
    page = next(tmp_path.glob("*.dist-info/METADATA")).read_text()
    links = re.findall(r"""(?:\]\(|src="|href=")([^)"\s]+)""", page)
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    ours = re.findall(
        rf"{re.escape(PROJECT['urls']['Repository'])}/(raw|blob)/v{re.escape(__version__)}/([^#\n]+)", "\n".join(links)
    )
    assert {kind for kind, _ in ours} == {"raw", "blob"}
    assert [path for _, path in ours if not (ROOT / path).exists()] == []


def test_one_file_has_the_address_of_the_repository() -> None:
    address = PROJECT["urls"]["Repository"].removeprefix("https://")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    texts = (
        path for name in tracked if (path := ROOT / name).suffix in (".md", ".cff", ".yml", ".yaml", ".ipynb", ".toml")
    )
    assert [path.name for path in texts if path.is_file() and address in path.read_text()] in ([], ["pyproject.toml"])
