from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.imagenet_c_stand_in.__main__ import PLAN, main
from benchmarks.imagenet_c_stand_in.corruptions import CLEAN, NOTICE, STRENGTHS, corrupt, write_stand_in
from tests.layouts import write_classes
from tllib_ancon.data.decoding import load_image
from tllib_ancon.data.domains import open_domain
from tllib_ancon.errors import UserError
from tllib_ancon.paper import plan


@pytest.fixture
def picture() -> torch.Tensor:
    """Smooth colours with an edge."""
    ramp = torch.linspace(20, 200, 128)
    image = torch.stack([ramp.expand(120, 128), ramp.flip(0).expand(120, 128), torch.full((120, 128), 90.0)])
    image[:, 45:75, 30:90] = 30
    return image.to(torch.uint8)


@pytest.mark.parametrize("corruption", STRENGTHS)
def test_a_corruption_keeps_the_form_and_changes_more_at_greater_strength(picture, corruption: str) -> None:
    changes = []
    for strength in range(1, 6):
        torch.manual_seed(0)
        corrupted = corrupt(picture, corruption, strength)
        assert (corrupted.shape, corrupted.dtype) == (picture.shape, torch.uint8)
        changes.append((corrupted.float() - picture.float()).abs().mean().item())
    assert changes[0] > 0
    assert changes[4] > 1.3 * changes[0]


@pytest.mark.parametrize("corruption", STRENGTHS)
@pytest.mark.parametrize("size", [(3, 8, 5), (3, 300, 200)])
def test_other_sizes(corruption: str, size: tuple[int, ...]) -> None:
    assert corrupt(torch.randint(0, 256, size, dtype=torch.uint8), corruption, 5).shape == size


def test_unknown_corruption_and_strength(picture) -> None:
    with pytest.raises(UserError, match="did you mean 'pixelate'"):
        corrupt(picture, "pixelated", 1)
    with pytest.raises(UserError, match="strength 6 of contrast"):
        corrupt(picture, "contrast", 6)


def test_the_stand_in_has_the_layout_and_says_what_it_is_not(tmp_path: Path) -> None:
    write_classes(tmp_path / "images", ["mug", "bike"], images=5)
    said: list[str] = []
    write_stand_in(tmp_path / "images", tmp_path / "out", ["contrast/5", "gaussian_noise/1"], said.append)
    assert "not ImageNet-C" in (tmp_path / "out" / NOTICE).read_text()
    assert len(said) == 3
    clean, dark = (open_domain(tmp_path / "out", "CorruptedImages", [code]) for code in (CLEAN, "contrast/5"))
    assert clean.classes == dark.classes == ["bike", "mug"]
    assert sorted(Path(path).name for path in clean.paths) == sorted(["000.png", "002.png", "004.png"] * 2)
    assert sorted(Path(path).name for path in dark.paths) == sorted(["001.png", "003.png"] * 2)
    assert load_image(clean.paths[0]).tobytes() == load_image(str(tmp_path / "images/bike/000.JPEG")).tobytes()
    assert not list((tmp_path / "out").rglob("*.partial"))


def test_the_stand_in_is_the_same_each_time_and_is_not_written_twice(tmp_path: Path) -> None:
    write_classes(tmp_path / "images", ["mug"], images=4)
    pictures = []
    for name in ("first", "second"):
        write_stand_in(tmp_path / "images", tmp_path / name, ["gaussian_noise/3"], print)
        torch.rand(3)
        pictures.append((tmp_path / name / "gaussian_noise/3/mug/001.png").read_bytes())
    assert pictures[0] == pictures[1]
    kept = tmp_path / "second" / "gaussian_noise/3/mug/001.png"
    kept.write_bytes(b"kept")
    write_stand_in(tmp_path / "images", tmp_path / "second", ["gaussian_noise/3"], print)
    assert kept.read_bytes() == b"kept"


def test_a_folder_without_class_folders(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a folder"):
        write_stand_in(tmp_path / "none", tmp_path / "out", ["contrast/1"], print)
    with pytest.raises(UserError, match="no pictures in class folders"):
        write_stand_in(tmp_path, tmp_path / "out", ["contrast/1"], print)


def test_the_command_writes_the_domains_of_its_plan(tmp_path: Path, capsys) -> None:
    write_classes(tmp_path / "images", ["mug"], images=2)
    assert main([str(tmp_path / "images"), str(tmp_path / "out"), "--pairs", "contrast/*"]) == 0
    assert sorted(path.name for path in (tmp_path / "out" / "contrast").iterdir()) == list("12345")
    assert main([str(tmp_path / "none"), str(tmp_path / "out")]) == 2
    assert "none is not a folder" in capsys.readouterr().err


def test_the_plan_names_corruptions_and_their_clean_source() -> None:
    loaded = plan.load(str(PLAN))
    assert {pair.split("/")[0] for pair in loaded.pairs} == set(STRENGTHS)
    assert {loaded.domains(pair)[0] for pair in loaded.pairs} == {CLEAN}
