"""The table of harm says which runs end below the source model, from one run's own epochs."""

import numpy as np
import pandas as pd

from benchmarks.left_out import harm
from benchmarks.left_out.families import Cell, Task
from tests.support.falls import striped_source_model, stripes


def test_one_run_gives_the_accuracies_of_each_epoch():
    settings = {"epochs": 2, "seed": 0, "threads": 1, "workers": 0, "batch_size": 32, "quiet": True}
    images = {"norm_mean": (0.5,) * 3, "norm_std": (0.5,) * 3, "image_size": 32}
    labels = np.arange(288) % 4
    task = Task(striped_source_model(), stripes(288, 0.3, 1), labels, {})
    row = harm.scored_by_both(task, {**settings, **images})
    assert row["start"] < 30
    moving, estimated, chosen = ([*map(float, row[name].split())] for name in ("moving", "estimated", "chosen"))
    assert len(moving) == len(estimated) == len(chosen) == 2
    assert min(estimated) > 90 > min(moving)
    assert min(chosen) > 90


def test_the_table_says_which_runs_lose_to_the_source_model():
    cells = [Cell("digits", "a-b", "equal", 0), Cell("digits", "a-b", "equal", 1)]
    numbers = [("50.0 40.0", "50.0 52.0", "50.0 52.0"), ("50.0 47.0", "50.0 49.0", "50.0 47.0")]
    rows = [(*cell, "ancon-auto", 100, 0.01, 0.5, 50.0, *row) for cell, row in zip(cells, numbers, strict=True)]
    lines = harm.table(pd.DataFrame(rows, columns=harm.COLUMNS)).splitlines()
    assert lines[2:] == [
        "| digits a-b, equal, seed 0 | ancon-auto | 50.0 | 40.0 | 52.0 | 52.0 |  |",
        "| digits a-b, equal, seed 1 | ancon-auto | 50.0 | 47.0 | 49.0 | 47.0 | yes |",
    ]
