from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tllib_ancon.data.image_list import read_image_list
from tllib_ancon.errors import UserError


def write(folder: Path, content: bytes | str) -> Path:
    path = folder / "list.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(folder: Path, content: bytes | str, **options: object) -> list[tuple[str, int | None]]:
    paths, labels = read_image_list(write(folder, content), folder, **options)
    names = [Path(path).relative_to(folder).as_posix() for path in paths]
    return list(zip(names, [None] * len(names) if labels is None else labels.tolist(), strict=True))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a.png 0\nb/c.png 1\n", [("a.png", 0), ("b/c.png", 1)]),
        ("a.png 0\n\n   \nb.png 1", [("a.png", 0), ("b.png", 1)]),
        ("a.png 0\r\nb.png 1\r\n", [("a.png", 0), ("b.png", 1)]),
        ("a.png\t0\nb.png \t 1", [("a.png", 0), ("b.png", 1)]),
        ("my photo 1.png 0\n", [("my photo 1.png", 0)]),
        ("übung/猫.png 3\n", [("übung/猫.png", 3)]),
        ("a.png 0\na.png 0\n", [("a.png", 0), ("a.png", 0)]),
        ("./a/../b.png 0\n", [("b.png", 0)]),
        ("a.png\nmy photo.png\n", [("a.png", None), ("my photo.png", None)]),
        (b"\xef\xbb\xbfa.png 0\n", [("a.png", 0)]),
    ],
)
def test_lists_as_people_write_them(tmp_path: Path, content: bytes | str, expected: list[tuple[str, int]]) -> None:
    assert read(tmp_path, content, num_classes=4) == expected


def test_lists_that_count_classes_from_one(tmp_path: Path) -> None:
    assert read(tmp_path, "a.png 1\nb.png 3\n", num_classes=3, first_label=1) == [("a.png", 0), ("b.png", 2)]
    with pytest.raises(UserError, match="label 0 is out of range; it must be at least 1 and below 4"):
        read(tmp_path, "a.png 0\n", num_classes=3, first_label=1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty"),
        ("\n \n", "empty"),
        ("a.png 0\nb.png 4\n", r"list.txt, line 2: label 4 is out of range.*below 4"),
        ("a.png 0\n\nb.png -2\n", r"line 3: label -2 is out of range"),
        ("a.png 0\nb.png\n", r"line 2: no integer label"),
        ("a.png 0\nb.png x\n", r"line 2: no integer label"),
        ("../a.png 0\n", r"line 1: .*outside the dataset root"),
        ("/etc/passwd 0\n", r"line 1: .*outside the dataset root"),
        (b"\xff\xfe\x00", "UTF-8"),
        ("a\0.png 0\n", "null"),
    ],
)
def test_faulty_lists_name_the_line(tmp_path: Path, content: bytes | str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(tmp_path, content, num_classes=4)


def test_a_link_that_leaves_the_root_is_refused_unless_allowed(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root, outside):
        folder.mkdir()
    (root / "link").symlink_to(outside)
    path = write(root, "link/a.png 0\n")
    with pytest.raises(UserError, match="`allow_outside_root=True`"):
        read_image_list(path, root)
    paths, labels = read_image_list(path, root, allow_outside=True)
    assert (list(paths), labels.tolist()) == ([str(root / "link" / "a.png")], [0])


def test_a_line_costs_one_look_at_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    followed = Counter()
    realpath = os.path.realpath

    def counted(path: str, **options: object) -> str:
        followed[path] += 1
        return realpath(path, **options)

    monkeypatch.setattr(os.path, "realpath", counted)
    read(tmp_path, "".join(f"class{number % 10}/{number}.png {number % 10}\n" for number in range(1000)))
    assert followed.total() <= 11


def test_missing_list(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not found"):
        read_image_list(tmp_path / "none.txt", tmp_path)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_any_bytes_give_samples_or_a_clear_error(tmp_path: Path, content: bytes) -> None:
    try:
        paths, labels = read_image_list(write(tmp_path, content), tmp_path, num_classes=10)
    except UserError:
        return
    assert paths
    assert all(path.startswith(str(tmp_path)) for path in paths)
    assert labels is None or (len(labels) == len(paths) and 0 <= labels.min() <= labels.max() < 10)
