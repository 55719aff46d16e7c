from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tllib_ancon.data.paths import Confined, Paths

LETTERS = st.characters(exclude_characters="\0/", exclude_categories=["Cs"])
NAMES = st.lists(st.text(LETTERS, min_size=1, max_size=8), min_size=1, max_size=4)


@given(st.lists(NAMES.map("/".join), max_size=20), st.sampled_from(["", "/data/root", "root"]), st.randoms())
def test_they_are_the_list_that_they_were_made_of(relative: list[str], root: str, random) -> None:
    expected = [os.path.join(root, path) for path in relative]
    paths = Paths(expected, root)
    assert list(paths) == expected
    assert paths[1:-1] == expected[1:-1]
    assert [paths.relative(index) for index in range(len(paths))] == relative
    positions = random.choices(range(len(paths)), k=5) if relative else []
    taken = paths.take(np.array(positions, dtype=int))
    assert list(pickle.loads(pickle.dumps(taken))) == [expected[position] for position in positions]


def test_bytes_that_are_no_text_come_back() -> None:
    path = os.fsdecode(b"/root/caf\xe9.png")
    assert Paths([path], "/root")[0] == path


def test_a_path_outside_the_root_stays_whole() -> None:
    paths = Paths(["/root/a.png", "/rooter/b.png", "/c.png"], "/root")
    assert list(paths) == ["/root/a.png", "/rooter/b.png", "/c.png"]


def test_a_path_takes_its_letters_and_sixteen_bytes() -> None:
    names = [f"/root/class_{number % 100}/{number:06d}.jpg" for number in range(10_000)]
    assert Paths(names, "/root").nbytes <= sum(map(len, names)) + 16 * len(names)
    with pytest.raises(IndexError):
        Paths(names)[10_000]


def test_links_are_followed_to_where_they_lead(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "rooter"
    for folder in (root / "class", outside):
        folder.mkdir(parents=True)
        (folder / "a.png").touch()
    (root / "out").symlink_to(outside)
    (root / "out.png").symlink_to(outside / "a.png")
    (root / "in.png").symlink_to(root / "class" / "a.png")
    (outside / "back").symlink_to(root / "class")
    inside = Confined(root)
    for path, expected in {
        "class/a.png": True,
        "in.png": True,
        "missing/a.png": True,
        "out.png": False,
        "out/a.png": False,
        "out/back/a.png": True,
        "../rooter/a.png": False,
    }.items():
        for _ in range(2):
            assert inside(os.path.normpath(root / path) if ".." in path else str(root / path)) is expected, path
