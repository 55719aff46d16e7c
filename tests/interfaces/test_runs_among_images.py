"""Run directories beside images."""

import pytest

import tllib_ancon
from tests.support.levels import UNSCALED, levels, write
from tests.support.refusals import one_line


@pytest.mark.parametrize("log", [".", "cat"])
def test_a_run_directory_is_no_folder_of_the_images(log, tmp_path):
    """A later call would leave its images out, or take a picture of the run for one."""
    photos = write(tmp_path / "photos", ["cat", "dog", "owl"], 3)
    before = sorted(photos.rglob("*"))
    with one_line(
        '^`log=".*"` holds images, and a run directory is no part of a dataset; choose another `log`, such as a new '
        "folder$"
    ):
        tllib_ancon.adapt(levels(3), photos, log=photos / log, **UNSCALED)
    assert sorted(photos.rglob("*")) == before
