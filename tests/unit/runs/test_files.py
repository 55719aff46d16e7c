"""Files are whole or absent, and a path that cannot be written says why."""

import numpy as np
import pytest

from tests.support.bomb import Bomb
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
    with one_line(line):
        new_file(str(tmp_path / name), overwrite=False, formats=(".csv", ".npz"))


def test_arrays_come_back_and_a_pickle_among_them_is_refused_and_does_not_run(tmp_path):
    file = tmp_path / "a.npz"
    write_arrays(file, {"numbers": [1, 2], "none": None})
    assert {name: array.tolist() for name, array in read_arrays(file).items()} == {"numbers": [1, 2]}
    np.savez(file, numbers=np.array([Bomb(tmp_path / "victim")], dtype=object))
    with one_line("a.npz cannot be read as arrays"):
        read_arrays(file)
    assert not (tmp_path / "victim").exists()
