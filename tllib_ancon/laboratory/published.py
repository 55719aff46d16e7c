"""What the paper prints (Joo and Klabjan, NeurIPS 2024): the CSV files of ``paper/``, one for each table."""

from pathlib import Path

import pandas as pd

_FOLDER = Path(__file__).with_name("paper")


def published(table: str) -> pd.DataFrame:
    """The rows of a table of the paper, such as ``officehome``, in its order.

    Index: method, and start: what the model was pretrained with, in ``uda``. A column for each printed one, with
    percentages in [0, 100]; ``average`` is the printed average.
    """
    rows = pd.read_csv(_FOLDER / f"{table}.csv")
    if "start" not in rows:
        rows["start"] = ""
    return rows.set_index(["method", "start"])
