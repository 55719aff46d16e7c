"""The paper's plans: their commands parse, and CDAN and MDD are trained as TLLib's scripts train them."""

import shlex
from pathlib import Path

import pytest

from tests.support.refusals import one_line
from tests.support.tllib import EXAMPLES, requires_checkout
from tllib_ancon.cli.main import parse
from tllib_ancon.data.layouts.tllib import TABLES
from tllib_ancon.laboratory import plan
from tllib_ancon.laboratory import published as numbers
from tllib_ancon.laboratory.tables import TITLES

OUT = Path("out")


@pytest.mark.parametrize("table", plan.tables())
def test_every_command_of_a_plan_parses_and_its_domains_are_known(table):
    loaded = plan.load(table)
    one_pair = loaded.select(pairs=[loaded.pairs[0]], seeds=[1])
    for run in one_pair.runs("ROOT", OUT):
        config = run.config
        assert config.root == "ROOT"
        assert config.seed == 1
        assert config.log == str(OUT / run.name)
        assert config.data == loaded.dataset
        assert configured_by(run.words).to_dict() == config.to_dict()
    assert loaded.dataset == "ImageFolder" or domains_of(loaded) <= set(TABLES[loaded.dataset].lists)


def domains_of(loaded):
    return {domain for pair in loaded.pairs for domain in pair.split("-")}


def configured_by(words):
    """The configuration that the command line of these words makes."""
    args = parse(words)
    return args.command.configured(args)


@pytest.mark.parametrize("table", [name for name in plan.tables() if plan.load(name).published])
def test_published_columns_are_the_columns_of_the_runs(table):
    loaded = plan.load(table)
    assert {*loaded.published} <= {*TITLES}
    for name in loaded.published.values():
        for severity in (1, 5):
            table = name.format(severity=severity)
            columns = {pair.split("/")[0] for pair in loaded.pairs}
            assert columns <= {*numbers.published(table)}


@requires_checkout
@pytest.mark.parametrize("start", ["cdan", "mdd"])
def test_cdan_and_mdd_are_trained_as_tllibs_scripts_train_them(start):
    """Every argument that the scripts give is the plan's; what they leave out is compared where scripts are run."""
    own = {"root", "seed", "log", "image_size", "module", "mixed_precision"}
    runs = plan.load("uda").select(seeds=[0]).runs("ROOT", OUT)
    parsed = [parse(run.words) for run in runs]
    planned = {(config.source[0], config.target[0]): config for config in parsed if config.method == start}
    lines = [line for line in (EXAMPLES / f"{start}.sh").read_text().splitlines() if "-d OfficeHome" in line]
    compared = set()
    for line in lines:
        theirs = parse(["pretrain", *shlex.split(line)[3:], "--method", start])
        if theirs.arch == "resnet50" and len(theirs.source) == 1:
            ours = planned[theirs.source[0], theirs.target[0]]
            assert ours.mixed_precision == "no"  # the scripts train in float32
            for name in vars(theirs).keys() - own:
                assert getattr(ours, name) == getattr(theirs, name), name
            compared.add((theirs.source[0], theirs.target[0]))
    assert compared == set(planned)


def test_pairs_are_selected_by_name_and_pattern():
    loaded = plan.load("imagenet-c")
    assert loaded.select(pairs=["frost/5"]).pairs == ("frost/5",)
    of_frost = loaded.select(pairs=["frost/*", "frost/5"])
    assert of_frost.pairs == tuple(f"frost/{severity}" for severity in range(1, 6))
    assert len(loaded.select(pairs=["*/5"]).pairs) == 17
    with one_line(r"did you mean 'frost/5'"):
        loaded.select(pairs=["frst/5"])
    with one_line("did you mean 'office31'"):
        plan.load("office-31")
