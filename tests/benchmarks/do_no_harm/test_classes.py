import numpy as np
import pandas as pd
import pytest

from benchmarks.do_no_harm import classes
from benchmarks.do_no_harm.classes import Setting, result
from tllib_ancon.data.domain import Domain

PER_CLASS, CLASSES = 40, 31


@pytest.fixture(autouse=True)
def office31(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.arange(PER_CLASS * CLASSES) % CLASSES
    paths = [f"{number}.jpg" for number in range(len(labels))]
    names = [f"class {number}" for number in range(CLASSES)]
    monkeypatch.setattr(
        classes, "open_domain", lambda root, data, codes: Domain.of_files(codes[0], paths, names, labels)
    )


def counts(setting: Setting) -> list[int]:
    labels = setting.domain("ROOT").labels
    assert labels is not None
    return sorted(np.bincount(labels, minlength=CLASSES).tolist(), reverse=True)


def test_kinds_of_targets() -> None:
    assert counts(Setting("A-D", "balanced", 0)) == [PER_CLASS] * CLASSES
    assert counts(Setting("A-D", "few-classes", 0)) == [PER_CLASS] * 10 + [0] * 21
    tail = counts(Setting("A-D", "long-tail", 0))
    assert tail[0] > 0.9 * PER_CLASS
    assert sum(tail[-3:]) < 0.2 * 3 * PER_CLASS
    assert sum(tail) == pytest.approx(PER_CLASS * sum(20 ** -(k / 30) for k in range(CLASSES)), rel=0.1)
    assert sum(counts(Setting("A", "no-shift", 0))) == PER_CLASS * CLASSES / 10


def test_the_table_has_paired_differences() -> None:
    rows = [
        ("A-D", "balanced", classes.BASE, 50.0, 60.0),
        ("A-W", "balanced", classes.BASE, 40.0, 70.0),
        ("A-D", "balanced", "ancon", 50.0, 63.0),
        ("A-W", "balanced", "ancon", 40.0, 71.0),
        ("A", "no-shift", classes.BASE, 90.0, 89.0),
    ]
    results = [
        result(pair, kind, 0, variant, {"start": {"accuracy": start}, "selected": {"accuracy": selected}})
        for pair, kind, variant, start, selected in rows
    ]
    assert classes.table(pd.DataFrame(results), classes.BASE).splitlines() == [
        "|  | balanced | no-shift |",
        "|---|---:|---:|",
        "| start | 45.0 (2) | 90.0 (1) |",
        "| ancon-auto, uniform | 65.0, worst +10.0 | 89.0, worst -1.0 |",
        "| ancon | 67.0, +2.0 ± 1.0, worst +13.0 |  |",
    ]
