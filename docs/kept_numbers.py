"""Writes the tables between ``<!-- numbers: NAME -->`` and ``<!-- end -->`` from the lists of runs that are kept.

    python docs/kept_numbers.py [--check]

With ``--check`` it writes nothing. It ends with 1 if a table is stale or a page lacks one of the numbers below.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.left_out import ablation, table  # noqa: E402
from benchmarks.speed import cost  # noqa: E402
from benchmarks.streams import __main__ as streams  # noqa: E402
from benchmarks.tables import markdown, study  # noqa: E402
from benchmarks.tables.beside import read  # noqa: E402
from benchmarks.toolkit import table as toolkit  # noqa: E402
from tllib_ancon.laboratory import demo  # noqa: E402
from tllib_ancon.laboratory.formats import rendered  # noqa: E402
from tllib_ancon.laboratory.paired import paired_table  # noqa: E402

BENCHMARKS = ROOT / "benchmarks"
RESULTS = BENCHMARKS / "results"
PAPER = BENCHMARKS / "tables" / "runs.csv"
STREAMS = BENCHMARKS / "streams" / "runs.csv"
BLOCK = re.compile(r"(<!-- numbers: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
ORDER = ["self-training", "adabn", "tent", "eta", "gce", "elr", "ancon", "shot", "nrc", "aad", "ancon-auto"]
PLACES = {variant: place for place, variant in enumerate([*ORDER, "shot+ancon-auto"])}
KINDS = {"long-tail": "long tail", "few": "four of ten"}
IN_README = ["self-training", "ancon", "shot", "ancon-auto", "shot+ancon-auto"]
BEFORE = "class weights of at most 3"
RULES = ("L: running shares", "I: estimated prior", "L, class weights of at most 1")
ONE_LOSS = "ancon-auto, no information maximisation"
AT_WHOLE_RATE = "L, two views, τ = 0.067"
AT_RATE_OF_LABELS = ("L, rate of labels", "I, rate of labels")
NAMES = {"start": "source model", "ancon": "ancon (λ = 0.3)", "ancon-auto": "**ancon-auto**"}


def main(check: bool) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *BENCHMARKS.rglob("*.md")]
    stale = [page for page in pages if written(page.read_text()) != page.read_text()]
    for page in stale:
        print(f"{page.relative_to(ROOT)}: {'stale; run python docs/kept_numbers.py' if check else 'written'}")
        if not check:
            page.write_text(written(page.read_text()))
    lacking = [
        (page, words)
        for page, all_words in sentences().items()
        for words in all_words
        if plain(words) not in plain((ROOT / page).read_text())
    ]
    for page, words in lacking:
        print(f"{page}: does not say {words!r}, as the lists do")
    sys.exit(int(bool(lacking) or (check and bool(stale))))


def plain(text: str) -> str:
    """A text on one line, with minus signs for dashes."""
    return " ".join(text.split()).replace("-", "−")


def sentences() -> dict[str, list[str]]:
    """Page -> numbers that the lists of runs give for it."""
    current, parts = runs("ablation/current"), runs("ablation/parts")
    found, others = runs("left_out"), runs("left_out_networks")
    whole_domains = runs("ablation/office31_224")
    of_other_makers = emoji().query("family == 'another maker'")
    prior = beside(found, "ancon-auto, true prior", "ancon-auto").replace("+", "")
    gains = [beside(found, "ancon-auto", other) for other in ("self-training", "ancon")]
    networks = pd.concat([runs("ablation/networks"), others.query("variant == 'self-training'")])
    networks = networks.assign(pair=networks.pair.str.split("-").str[1])
    claimed = [
        beside(current, "ancon", "self-training"),
        beside(current, "ancon-auto", "self-training"),
        beside(networks, "ancon-auto", "self-training"),
        beside(current, "ancon-auto", "shot"),
        beside(runs("ablation/office31"), "ancon-auto", "shot"),
        beside(whole_domains, "ancon", "self-training"),
        *(beside(whole_domains, method, "shot") for method in ("ancon-auto", "shot+ancon-auto")),
        beside(runs("ablation/office31_128_equal"), "shot+ancon-auto, equal classes", "shot"),
        *(beside(of_other_makers, "ancon-auto", method) for method in ("self-training", "shot")),
        beside(parts, "ancon-auto", "ancon-auto, no votes"),
        after_scripts("ancon"),
    ]
    equal = runs("ablation/office31_128_equal")
    chosen_on = {("A-D", 1), ("D-A", 1), ("A-D", 2), ("D-W", 2), ("W-D", 2)}
    judged = equal[[run not in chosen_on for run in zip(equal.pair, equal.seed, strict=True)]]
    return {
        "benchmarks/default.md": [
            f"the difference is {beside(judged, 'shot+ancon-auto, equal classes', 'shot')} points",
            f"{beside(whole_domains, 'ancon', 'self-training').lstrip('+')} points more than self-training",
        ],
        "README.md": [f"SHOT is {beside(whole_domains, 'shot', 'ancon-auto').lstrip('+')} points better there"],
        "benchmarks/toolkit/README.md": [
            f"`ancon` is {after_scripts('ancon').lstrip('+')} points above self-training",
            f"`ancon-auto` {after_scripts('ancon-auto').lstrip('+')}",
        ],
        "benchmarks/speed/README.md": [
            f"{beside(whole_domains, 'ancon-auto', 'self-training').lstrip('+')} points above self-training",
            f"SHOT {beside(whole_domains, 'shot', 'ancon-auto').lstrip('+')} above `ancon-auto`",
        ],
        "benchmarks/streams/README.md": [
            f"`stream-auto` minus `eta` is {in_streams('stream-auto', 'eta')} points",
            f"It is {in_streams('stream-auto', 'roid')} beside `roid`",
            f"{in_streams('stream-auto', 'tent')} beside `tent`",
            f"no method leads: {in_streams('stream-auto', 'eta', 2000)} beside `eta`",
            f"{in_streams('stream-auto', 'roid', 2000)} beside `roid`",
            f"With ResNet-56 it is {in_streams('stream-auto', 'eta', network='resnet56')} beside `eta`",
            f"{in_streams('stream-auto', 'roid', network='resnet56')} beside `roid`",
            f"{in_streams('stream-auto', 'eta', 2000, 'resnet56')} beside `eta`",
            f"`stream-auto` is {in_streams('roid', 'stream-auto', mode='episodic').lstrip('+')} points behind `roid`",
            f"It changes ROID by {in_streams('roid, stack', 'roid', 2000).lstrip('+')} points",
        ],
        "benchmarks/tables/README.md": of_pairs("office31_128", "office31_128_to_amazon"),
        "docs/claims.md": [f"| {number.replace('-', '−')} points |" for number in claimed],
        "benchmarks/tried.md": [
            f"is above self-training by {gains[0].lstrip('+')}",
            f"beside λ = 0.3 at {gains[1]}",
            f"adds {prior} points",
        ],
    }


def after_scripts(method: str) -> str:
    """What a method's accuracy is above self-training's, after TLLib's scripts; standard error over pairs."""
    found = pd.read_csv(BENCHMARKS / "toolkit" / "runs.csv")
    pairs = found.pivot_table("accuracy_after", "pair", "method")  # the mean over scripts
    differences = pairs[method] - pairs["self-training"]
    return f"{differences.mean():+.1f} ± {differences.sem():.1f}"


def beside(found: pd.DataFrame, variant: str, other: str) -> str:
    """The paired difference of two variants over pairs, with its standard error."""
    pairs = found.pivot_table("last", ["family", "pair"], "variant")
    differences = (pairs[variant] - pairs[other]).dropna()
    return f"{differences.mean():+.1f} ± {differences.sem():.1f}"


def of_pairs(*studies: str) -> list[str]:
    """The first two cells of each row of differences, as ``python -m benchmarks.tables.beside`` prints them."""
    printed = rendered("table.md", table=paired_table(read([PAPER], studies)))
    rows = [line.strip("| ").split(" | ")[:3] for line in printed.splitlines() if " − " in line]
    return [f"| {label} | {float(mean):+.2f} ± {error} |" for label, mean, error in rows]


def in_streams(
    method: str, other: str, images: int = 10_000, network: str = "resnet20", mode: str = "continual"
) -> str:
    """The paired difference of two methods over the corruptions of a stream."""
    rows = pd.read_csv(STREAMS)
    rows = rows[(rows.network == network) & (rows.images == images) & (rows["mode"] == mode)]
    accuracies = rows.pivot_table("accuracy", "corruption", "method")
    differences = accuracies[method] - accuracies[other]
    return f"{differences.mean():+.1f} ± {differences.sem():.1f}".replace("-", "−")


def written(text: str) -> str:
    """A page with the tables of its blocks made anew, minus signs as typeset."""
    return BLOCK.sub(lambda block: block[1] + re.sub(r"(?<=[ ,|])-(?=\d)", "−", TABLES[block[2]]()) + block[4], text)


def runs(name: str) -> pd.DataFrame:
    """A list of runs, or FOLDER/STUDY: what it is compared with first, what is this package's last."""
    folder, _, part = name.partition("/")
    found = study(BENCHMARKS / folder / "runs.csv", part) if part else pd.read_csv(RESULTS / f"{name}.csv")
    return found.sort_values("variant", key=lambda names: names.map(PLACES).fillna(len(PLACES)), kind="stable")


def of_seeds(rate: str) -> str:
    """Of the demo a row a method: means over seeds with their deviations, paired differences with standard errors."""
    found = study(PAPER, "demo").query("rate == @rate")
    methods, rows = {method: own.to_dict("records") for method, own in found.groupby("method", sort=False)}, []
    for method, row in demo.summarize(methods).items():
        rows.append([method])
        for name, form in (("accuracy", ".1f"), ("ece", ".3f")):
            beside = f"{row[f'{name}_difference']:+{form}} ± {row[f'{name}_standard_error']:{form}}"
            value = f"{row[name]:{form}} ± {row[f'{name}_deviation']:{form}}"
            rows[-1] += [value, "" if method == demo.REFERENCE else beside]
    return markdown(["", "accuracy (%)", "− self-training", "ECE (15 bins)", "− self-training's"], rows, numbers=True)


def by_kind(name: str) -> str:
    """A column a kind of target; standard errors over corruptions, networks averaged."""
    found = runs(name)
    found = found.assign(family=found.kind.replace(KINDS), corruption=found.pair.str.split("-").str[1])
    return table.markdown_of(found, unit=["corruption"])


def by_corruption(name: str, race: bool = False) -> str:
    found = pd.concat([runs(name), *([table.of_race(BENCHMARKS / "race" / "race.csv")] if race else [])])
    return table.over_pairs(found.replace({"pair": r"resnet\d+-(.*)-5"}, r"\1", regex=True))


def for_readme() -> str:
    """Means over the test sets, the largest gain and loss of one, and the accuracy on whole domains."""
    found = runs("ablation/current").query("variant in @IN_README")
    whole_domains = runs("ablation/office31_224")
    rows = []
    for row in table.markdown_of(found).splitlines()[2:]:
        variant, *_, mean, difference = (cell.strip() for cell in row.split("|")[1:8])
        rows.append([NAMES.get(variant, variant), mean, difference, *extremes(found, variant)])
        rows[-1].append(mean_of_pairs(whole_domains, variant))
    header = ["", "mean of 34", "− self-training", "best test set", "worst test set", "whole domains"]
    return markdown(header, rows, numbers=True)


def extremes(found: pd.DataFrame, variant: str) -> list[str]:
    """The largest gain over the source model on one test set, and the largest loss."""
    own = found[found.variant == variant]
    gains = (own["last"] - own.start).sort_values()
    if gains.empty:
        return ["", ""]
    pairs = own.pair.str.removeprefix("resnet20-")
    return [f"{gains.iloc[place]:+.1f} ({pairs[gains.index[place]]})" for place in (-1, 0)]


def by_pair(found: pd.DataFrame) -> str:
    """A row for each variant and a column for each pair; source models have one view, as SHOT has."""
    starts = found.query("variant == 'shot'").assign(variant="start", last=lambda rows: rows.start)
    pairs = pd.concat([starts, found]).pivot_table("last", "variant", "pair", sort=False).sort_index(axis=1)
    rows = [[NAMES.get(variant, variant), *(f"{value:.1f}" for value in own)] for variant, own in pairs.iterrows()]
    return markdown(["", *pairs.columns], rows, numbers=True)


def mean_of_pairs(found: pd.DataFrame, variant: str) -> str:
    """The mean accuracy over pairs; ``start`` is that of the source models, with one view as SHOT has."""
    column = "start" if variant == "start" else "last"
    own = found[found.variant == ("shot" if variant == "start" else variant)]
    if own.empty:
        return ""
    return f"{own.groupby('pair')[column].mean().mean():.1f}"


def better_labels(part: str, *variants: str, beside: str = BEFORE) -> str:
    """Rows of trials beside a variant, on the cells that all of them have."""
    found = study(RESULTS / "better_labels.csv", part)
    unit = ["seed"] if part == "harm" else ["family", "pair"]  # harm: one pair
    return table.markdown_of(found[found.variant.isin([beside, *variants])], beside, unit)


def of_two_views() -> pd.DataFrame:
    """The 34 test sets of L where there are two views. On digits, which have one view, it is ``ancon-auto``; on the
    demo and CIFAR-10-C it is L at the rate of the labels. It was run on Office-31 alone."""
    found = study(RESULTS / "better_labels.csv", "runs")
    of_labels = found[(found.variant == "L, rate of labels") & found.family.isin(["demo", "cifar10-c"])]
    of_one_view = found[(found.variant == "ancon-auto") & (found.family == "digits")]
    rule = pd.concat([of_one_view, of_labels]).assign(variant="L, two views")
    return pd.concat([found[found.variant.isin(["ancon-auto", "L, two views"])], rule])


def of_the_whole_rate() -> pd.DataFrame:
    """Three seeds of the 34 test sets. On digits, which have one view, the rule is ``ancon-auto``."""
    found = pd.concat([study(RESULTS / "better_labels.csv", part) for part in ("runs", "seed_1", "seed_2")])
    found = found[found.variant.isin(["ancon-auto", AT_WHOLE_RATE])]
    seeds = found[found.variant == AT_WHOLE_RATE].seed.unique()
    of_one_view = found[(found.family == "digits") & (found.variant == "ancon-auto") & (found.seed < 2)]
    return pd.concat([found[found.seed.isin(seeds)], of_one_view.assign(variant=AT_WHOLE_RATE)])


def of_many_epochs() -> str:
    """Digits and the demo after 30 epochs, beside three (demo: six)."""
    few = runs("ablation/current")
    few = few[few.variant.isin(["self-training", ONE_LOSS]) & few.family.isin(["digits", "demo"])]
    many = runs("ablation/many_epochs")
    return table.markdown_of(pd.concat([few, many.assign(variant=many.variant + ", 30 epochs")]), ONE_LOSS)


def of_other_networks(part: str, beside: str) -> str:
    """Rows of trials beside a variant with other networks; standard errors over corruptions, networks averaged."""
    return over_corruptions(study(RESULTS / "better_labels.csv", part), beside)


def emoji() -> pd.DataFrame:
    """Runs on pictures of emoji, as two families: by the maker of the source's pictures, and by another one."""
    found = runs("emoji")
    makers = found.pair.str.split("-")
    families = (makers.str[0] == makers.str[1]).map({True: "the same maker", False: "another maker"})
    return found.assign(family=families)


def of_all_networks() -> str:
    """The default beside the one before on the 32 test sets of other networks, in the same way."""
    parts = {part: study(RESULTS / "better_labels.csv", part) for part in ("networks", "networks_left")}
    before = parts["networks"].query("variant == 'ancon-auto'")
    after = study(RESULTS / "better_labels.csv", "networks_after")
    return over_corruptions(pd.concat([before, after, parts["networks_left"]]), "ancon-auto")


def over_corruptions(found: pd.DataFrame, beside: str) -> str:
    corruptions = found.pair.str.split("-").str[1]
    return table.markdown_of(found.assign(corruption=corruptions), beside, ["corruption"])


def of_cells(part: str, *variants: str) -> str:
    """A row a test set: accuracies of the source model and of the variants after the last epoch."""
    found = study(RESULTS / "better_labels.csv", part)
    cells = found.pivot_table("last", table.CELL, "variant", sort=False)[[*variants]].dropna()
    starts = found.drop_duplicates(table.CELL).set_index(table.CELL).start
    rows = []
    for cell, accuracies in cells.iterrows():
        family, pair, kind, seed = cell
        rows.append(
            [f"{family}, {pair}, {kind}, seed {seed}", f"{starts[cell]:.1f}", *(f"{x:.1f}" for x in accuracies)]
        )
    return markdown(["", "start", *variants], rows, numbers=True)


TABLES: dict[str, Callable[[], str]] = {
    "cost": cost.table,
    "cost_ablation": cost.table_of_the_ablation,
    "demo": lambda: of_seeds("usual"),
    "demo_full_rate": lambda: of_seeds("full"),
    "left_out": lambda: table.markdown_of(runs("left_out")),
    "left_out_readme": for_readme,
    "ablation": lambda: ablation.accuracies(runs("ablation/parts")),
    "ablation_office31": lambda: table.over_pairs(runs("ablation/office31"), "shot"),
    "ablation_office31_224": lambda: table.over_pairs(runs("ablation/office31_224"), "shot"),
    "ablation_office31_224_pairs": lambda: by_pair(runs("ablation/office31_224")),
    "ablation_office31_128": lambda: table.over_pairs(runs("ablation/office31_128"), "shot"),
    "ablation_office31_128_equal": lambda: table.over_pairs(runs("ablation/office31_128_equal"), "shot"),
    "ablation_current": lambda: table.markdown_of(runs("ablation/current")),
    "ablation_equal_compute": lambda: table.markdown_of(runs("ablation/equal_compute"), "ancon-auto"),
    "ablation_many_epochs": of_many_epochs,
    "toolkit": lambda: toolkit.table(pd.read_csv(BENCHMARKS / "toolkit" / "runs.csv")),
    "online": lambda: streams.table(pd.read_csv(STREAMS)),
    "online_orders": lambda: streams.table_of_orders(pd.read_csv(STREAMS)),
    "better_labels": lambda: better_labels("runs", "ancon-auto"),
    "better_labels_no_shift": lambda: better_labels("harm", "ancon-auto", "+ votes", "L: running shares"),
    "better_labels_rules": lambda: better_labels("runs", "ancon-auto", "+ votes", *RULES),
    "better_labels_pictures": lambda: better_labels("harm_pictures", "ancon-auto", beside="ancon-auto, one view"),
    "better_labels_rates": lambda: better_labels("runs", *AT_RATE_OF_LABELS, beside="ancon-auto"),
    "better_labels_two_views": lambda: table.markdown_of(of_two_views(), "ancon-auto"),
    "better_labels_networks": lambda: of_other_networks("networks", "ancon-auto"),
    "better_labels_step": lambda: table.markdown_of(of_the_whole_rate(), "ancon-auto"),
    "emoji": lambda: table.markdown_of(emoji()),
    "better_labels_step_networks": of_all_networks,
    "better_labels_step_epochs": lambda: of_cells("many_epochs_again", "ancon-auto", AT_WHOLE_RATE),
    "better_labels_whole_rate": lambda: better_labels(
        "runs", "L, two views", "L, two views, whole rate", beside="ancon-auto"
    ),
    "better_labels_new_seeds": lambda: of_cells("no_shift", "ancon-auto", "L, two views"),
    "better_labels_many_epochs": lambda: of_cells(
        "many_epochs", "ancon-auto", "L, two views", "L, two views, whole rate"
    ),
    "better_labels_neighbours": lambda: better_labels("runs", "neighbours", "L + neighbours"),
    "ablation_parts": lambda: ablation.parts(runs("ablation/parts")),
    "left_out_chosen": lambda: table.markdown_of_chosen(runs("left_out")),
    "left_out_networks": lambda: by_kind("left_out_networks"),
    "left_out_even": lambda: by_kind("left_out_even"),
    "left_out_three_to_one": lambda: by_kind("left_out_three_to_one"),
    "left_out_corruptions": lambda: by_corruption("left_out_corruptions"),
    "left_out_corruptions_10000": lambda: by_corruption("left_out_corruptions_10000", race=True),
    "left_out_corruptions_resnet56": lambda: by_corruption("left_out_corruptions_resnet56"),
}

if __name__ == "__main__":
    main(check="--check" in sys.argv)
