"""The paper's tables; and tables in Markdown, which every benchmark writes, with the CSV files of rows behind them."""

import pandas as pd


def markdown(header, rows, numbers=False):
    """A table, its end of line included.

    Args:
        numbers: all columns but the first are set to the right
    """
    rule = "|---|" + ("---:|" if numbers else "---|") * (len(header) - 1)
    first, *others = (f"| {' | '.join(map(str, row))} |\n" for row in (header, *rows))
    return "".join([first, rule + "\n", *others])


def by_columns(columns):
    """The same of numbers and how each column of them is formatted, by the columns' titles."""
    cells = [[format(value, form) for value in values] for values, form in columns.values()]
    return markdown([*columns], list(zip(*cells, strict=True)), numbers=True)


def with_error(values, sign=""):
    """The mean and its standard error; ``+`` shows the sign of a difference."""
    return f"{values.mean():{sign}.1f} ± {values.sem():.1f}"


def recorded(file, columns):
    """What the rows of a CSV file have in these columns; nothing without the file."""
    return set(pd.read_csv(file)[[*columns]].itertuples(index=False, name=None)) if file.exists() else set()


def record(file, rows, columns=None):
    pd.DataFrame(rows, columns=columns).to_csv(file, mode="a", header=not file.exists(), index=False)
