"""Families of images are pinned and verified, and relatives of a font family are in one part."""

from collections import Counter

import pytest

from benchmarks import data
from tllib_ancon.runtime.errors import UserError


def test_families_of_fonts_are_pinned_and_in_one_part_with_their_relatives():
    fonts = data.fonts()
    assert len({font.family for font in fonts}) == len(fonts)
    assert {font.category for font in fonts} == set(data.DOMAINS)
    assert all(len(font.sha256) == 64 and font.version for font in fonts)
    parts = {}
    for font in fonts:
        parts.setdefault(font.family.split("-")[0], set()).add(font.part)
    assert all(len(found) == 1 for found in parts.values())
    sizes = Counter((font.category, font.part) for font in fonts)
    assert all(sizes[category, part] >= 3 for category in data.DOMAINS for part in set(data.PARTS))


def test_a_family_that_is_missing_or_changed_is_an_error_that_names_its_address(tmp_path):
    (tmp_path / "digits").mkdir()
    with pytest.raises(UserError, match="rasbt/mnist-pngs"):
        data.main(["digits", str(tmp_path)])
    (tmp_path / "digits" / "usps.npz").write_bytes(b"changed")
    with pytest.raises(UserError, match="checksum"):
        data.main(["digits", str(tmp_path)])
