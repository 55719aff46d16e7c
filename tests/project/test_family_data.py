"""Families of fonts are pinned, and relatives are in one part: none trains a source model and is a target as well."""

from benchmarks import data


def test_families_of_fonts_are_pinned_and_in_one_part_with_their_relatives():
    fonts = data.fonts()
    assert {font.category for font in fonts} == set(data.DOMAINS)
    assert all(len(font.sha256) == 64 and font.version for font in fonts)
    part_of = {font.family.split("-")[0]: font.part for font in fonts}
    assert all(font.part == part_of[font.family.split("-")[0]] for font in fonts)
