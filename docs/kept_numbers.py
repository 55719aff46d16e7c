"""Writes the tables between ``<!-- numbers: NAME -->`` and ``<!-- end -->`` from the lists of runs that are kept.

    python docs/kept_numbers.py [--check]

With ``--check`` nothing is written, and it ends with 1 if a table is stale.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.left_out import table  # noqa: E402
from benchmarks.tables import markdown  # noqa: E402
from tllib_ancon.paper import demo  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
BLOCK = re.compile(r"(<!-- numbers: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
ORDER = ["self-training", "adabn", "tent", "eta", "gce", "elr", "ancon", "shot", "nrc", "aad", "ancon-auto"]
PLACES = {variant: place for place, variant in enumerate([*ORDER, "shot+ancon-auto"])}
README = {
    "start": "source model",
    "self-training": "self-training",
    "ancon": "ancon (λ = 0.3)",
    "shot": "shot",
    "ancon-auto": "ancon-auto",
    "shot+ancon-auto": "**shot+ancon-auto**",
}
FAMILIES = {"office31": "Office-31", "cifar10-c": "CIFAR-10-C"}
KINDS = {"long-tail": "long tail", "few": "four of ten"}


def main() -> None:
    check, stale = "--check" in sys.argv, False
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *RESULTS.glob("*.md")]:
        text = page.read_text()
        if (made := written(text)) != text:
            stale = True
            print(f"{page.relative_to(ROOT)}: {'stale; run python docs/kept_numbers.py' if check else 'written'}")
            if not check:
                page.write_text(made)
    sys.exit(check and stale)


def written(text: str) -> str:
    """A page with the tables of its blocks made anew, minus signs as typeset."""
    return BLOCK.sub(lambda block: block[1] + re.sub(r"(?<=[ ,|])-(?=\d)", "−", TABLES[block[2]]()) + block[4], text)


def runs(name: str) -> pd.DataFrame:
    """A list of runs: what it is compared with first, what is this package's last."""
    found = pd.read_csv(RESULTS / f"{name}.csv")
    return found.sort_values("variant", key=lambda names: names.map(PLACES).fillna(len(PLACES)), kind="stable")


def demo_table(rate: str) -> str:
    """A row a method: means over the seeds with their deviations, and paired differences with standard errors."""
    found = pd.read_csv(RESULTS / "demo.csv").query("rate == @rate")
    summary = demo.summarize({method: own.to_dict("records") for method, own in found.groupby("method", sort=False)})
    rows = []
    for method, row in summary.items():
        cells = [method]
        for name, digits in (("accuracy", 1), ("ece", 3)):
            cells.append(f"{row[name]:.{digits}f} ± {row[f'{name}_deviation']:.{digits}f}")
            beside = f"{row[f'{name}_difference']:+.{digits}f} ± {row[f'{name}_standard_error']:.{digits}f}"
            cells.append("" if method == demo.REFERENCE else beside)
        rows.append(cells)
    return markdown(["", "accuracy (%)", "− self-training", "ECE (15 bins)", "− self-training's"], rows, numbers=True)


def readme() -> str:
    """What the README has of the four families: the named rows, without the column of harm."""
    found = runs("left_out").query("variant in @README").replace({"family": FAMILIES})
    header, _, *rows = table.markdown_of(found).splitlines()
    named = [[README[variant], *cells[:6]] for variant, *cells in map(cells_of, rows)]
    return markdown(cells_of(header)[:7], named, numbers=True)


def cells_of(row: str) -> list[str]:
    return [cell.strip() for cell in row.split("|")[1:-1]]


TABLES: dict[str, Callable[[], str]] = {
    "left_out": lambda: table.markdown_of(runs("left_out")),
    "left_out_chosen": lambda: table.markdown_of_chosen(runs("left_out")),
    "left_out_networks": lambda: table.markdown_of(
        runs("left_out_networks").assign(family=lambda found: found.kind.replace(KINDS))
    ),
    "left_out_corruptions": lambda: table.over_pairs(
        runs("left_out_corruptions").replace({"pair": r"resnet20-(.*)-5"}, r"\1", regex=True)
    ),
    "left_out_readme": readme,
    "demo": lambda: demo_table("usual"),
    "demo_full_rate": lambda: demo_table("full"),
}

if __name__ == "__main__":
    main()
