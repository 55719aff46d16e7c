from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.digits import to_tllib
from benchmarks.do_no_harm import lists
from tests.layouts import write_list
from tllib_ancon.data.open import open_domain


def test_a_long_tail_falls_to_a_twentieth_and_keeps_every_class() -> None:
    samples = pd.DataFrame([(f"{label}/{number}.jpg", label) for number in range(100) for label in range(5)])
    samples.columns = ["path", "label"]
    assert lists.long_tail(samples).label.value_counts().sort_index().tolist() == [100, 47, 22, 11, 5]
    assert len(lists.long_tail(samples[:5])) == 5


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    for name in lists.OFFICE31:
        write_list(tmp_path / "office31", name, images=62, classes=31)
    pictures = {f"{split}_x": np.zeros((20, 4, 4), np.uint8) for split in ("train", "test")}
    labels = {f"{split}_y": np.arange(20) % 10 for split in ("train", "test")}
    np.savez(tmp_path / "digits.npz", **pictures, **labels)
    arrays = str(tmp_path / "digits.npz")
    assert to_tllib.main([str(tmp_path / "digits"), "--mnist", arrays, "--usps", arrays]) == 0
    monkeypatch.setattr(lists, "DIGITS_TARGET", 5)
    return ["--office31", str(tmp_path / "office31"), "--digits", str(tmp_path / "digits")]


def test_the_lists_open_and_name_the_images_where_they_lie(tmp_path: Path, roots: list[str]) -> None:
    lists.main([str(tmp_path / "lists"), *roots])
    sizes = {}
    for root, domains in {
        "office31": (*lists.OFFICE31, "amazon_long_tail", "amazon_few_classes"),
        "digits": ("mnist_source", "mnist_target", "mnist_test", "usps_source", "usps_target", "usps_test"),
    }.items():
        for code in domains:
            domain = open_domain(tmp_path / "lists" / root, "ImageList", [code], allow_outside=True)
            assert all(Path(path).is_file() for path in domain.paths)
            assert domain.num_classes == (31 if root == "office31" else 10)
            sizes[code] = len(domain)
    assert sizes["amazon"] == 62
    assert sizes["amazon_few_classes"] == 20
    assert 31 <= sizes["amazon_long_tail"] < 62
    assert (sizes["mnist_source"], sizes["mnist_target"], sizes["mnist_test"]) == (20, 5, 20)
