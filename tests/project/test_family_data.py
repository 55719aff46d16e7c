"""Families of images are verified."""

import pytest

from benchmarks import data
from tllib_ancon.runtime.errors import UserError


def test_a_family_that_is_missing_or_changed_is_an_error_that_names_its_address(tmp_path):
    (tmp_path / "digits").mkdir()
    with pytest.raises(UserError, match="rasbt/mnist-pngs"):
        data.main(["digits", str(tmp_path)])
    (tmp_path / "digits" / "usps.npz").write_bytes(b"changed")
    with pytest.raises(UserError, match="checksum"):
        data.main(["digits", str(tmp_path)])
