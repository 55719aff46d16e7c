"""Files are whole or absent, and a path that cannot be written says why."""

import numpy as np
import pytest

from tests.support.refusals import one_line
from tllib_ancon.runs.files import new_file, read_arrays, write_arrays


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("x.txt", r'`out=".*x.txt"`: its ending decides the format; expected .csv or .npz$'),
        ("nowhere/x.csv", r'`out=".*x.csv"`: the folder .*nowhere does not exist; create it first$'),
        ("old.csv", r"old.csv exists; pass `overwrite=True` to replace it, or another `out`$"),
    ],
)
def test_a_path_that_cannot_be_written_is_one_line(name, line, tmp_path):
    (tmp_path / "old.csv").touch()
    with one_line(line) as error:
        new_file(str(tmp_path / name), overwrite=False, formats=(".csv", ".npz"))
    assert error.value.setting == ("" if name == "old.csv" else "out")
    assert new_file(tmp_path / "old.csv", formats=(".csv",)) == tmp_path / "old.csv"


def test_arrays_come_back_without_those_that_are_none(tmp_path):
    write_arrays(tmp_path / "a.npz", {"numbers": [1, 2], "none": None})
    (name,) = read_arrays(tmp_path / "a.npz").items()
    assert name[0] == "numbers"
    np.testing.assert_array_equal(name[1], [1, 2])
    (tmp_path / "a.npz").write_bytes(b"no arrays")
    with one_line("a.npz cannot be read as arrays"):
        read_arrays(tmp_path / "a.npz")
