from __future__ import annotations

import json
from pathlib import Path

import pytest

from tllib_ancon.config import AdaptConfig, PretrainConfig
from tllib_ancon.paper.estimate import hours, images_of, measured_speed, recorded_speed


def test_images_of_a_run() -> None:
    sizes = {"A": 100, "D": 30}
    source = PretrainConfig(source=("A",), epochs=2, hold_out=0.1)
    assert images_of(source, sizes) == pytest.approx(2 * (90 + 10 / 3))
    domains = {"source": ("A",), "target": ("D",)}
    adversarial = PretrainConfig(**domains, method="cdan", epochs=2, batch_size=10, iters_per_epoch=5)
    assert images_of(adversarial, sizes) == pytest.approx(2 * (2 * 10 * 5 + 30 / 3))
    adapted = AdaptConfig(target=("D",), epochs=3, hold_out=0.1)
    assert images_of(adapted, sizes) == pytest.approx(3 * (27 + 33 / 3))


def test_the_recorded_speed_is_of_adaptations(tmp_path: Path) -> None:
    assert recorded_speed(tmp_path) is None
    for name, speeds in (("source/erm-A-seed0", [1, 1, 1]), ("erm/A-D/ancon-seed0", [30, 10, 20])):
        (tmp_path / name).mkdir(parents=True)
        lines = [json.dumps({"epoch": 0}), *(json.dumps({"images_per_second": speed}) for speed in speeds)]
        (tmp_path / name / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert recorded_speed(tmp_path) == 20


def test_a_speed_can_be_measured() -> None:
    assert measured_speed(AdaptConfig(arch="small_cnn", image_size=32, batch_size=4)) > 1


def test_hours() -> None:
    assert hours(90) == "2 min"
    assert hours(7200) == "2.0 h"
