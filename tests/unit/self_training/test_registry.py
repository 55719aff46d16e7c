"""A method of this or another package reads its own options; a broken package breaks only its method."""

import sys

import pytest
import torch

from tests.support.places import ROOT, blocks_of
from tests.support.refusals import REFUSED, one_line, refused
from tllib_ancon import methods
from tllib_ancon.self_training import registry

SIZES = {"num_samples": 9, "num_classes": 3, "feature_dim": 4, "total_steps": 5}


@pytest.mark.parametrize(("name", "given", "message"), REFUSED["methods"])
def test_what_is_refused(name, given, message):
    with refused(message):
        methods.all_options(name, given)
    with refused(message):
        methods.create(name, **SIZES, **given)


MODULE = blocks_of((ROOT / "docs" / "own_method.md").read_text(encoding="utf-8"), "python")[0]
"""The page's, which the tests install."""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Installs a package with modules and entry points beside this one; gone after the test."""
    registered = dict(registry.REGISTERED)

    def forget():
        registry._entry_points.cache_clear()
        registry._failure_to_load.cache_clear()

    def install(my_method):
        (tmp_path / "my_method.py").write_text(my_method)
        info = tmp_path / "my_methods-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-methods\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[{methods.ENTRY_POINT_GROUP}]\nfocal = my_method\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        forget()

    yield install
    registry.REGISTERED.clear()
    registry.REGISTERED.update(registered)
    sys.modules.pop("my_method", None)
    monkeypatch.undo()
    forget()


def test_a_method_of_another_package_composes_with_its_own_option(package):
    package(MODULE)
    method = methods.create("focal+ancon", **SIZES, focus=0.0, smoothing=0.5)
    plain = methods.create("ancon", **SIZES, smoothing=0.5)
    logits = torch.randn(4, 3)
    features = torch.randn(4, 4)
    for _ in range(2):
        loss = method(torch.arange(4), logits, features)
        torch.testing.assert_close(loss, plain(torch.arange(4), logits, features))
    assert not torch.isclose(methods.create("focal", **SIZES)(torch.arange(4), logits, features), loss)
    assert methods.names()[-4:] == ["focal", "focal+elr", "focal+ancon", "focal+ancon-auto"]
    assert "focus" in methods.settings()
    assert methods.all_options("focal+ancon", {})["focus"] == 2.0
    with one_line("`focus` is an option of focal, not of ancon"):
        methods.all_options("ancon", {"focus": 1.0})
    with one_line("`focus` cannot be"):
        methods.create("focal", **SIZES, focus=-1.0)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("raise RuntimeError('first line\\nsecond line')", "RuntimeError: first line second line"),
        ("", "my_method does not call tllib_ancon.methods.register\\('focal', ...\\)"),
        (MODULE.replace("(2.0, ", "('two', "), "`focus` cannot be 'two'"),
        (
            MODULE.replace('"focal"', '"ancon"'),
            "method name 'ancon' is taken, .* small letters, digits and dashes; choose another one",
        ),
        (MODULE.replace("focus:", "votes:"), "`votes` is the name of a setting, or an attribute of Method"),
        (MODULE.replace('("elr", "ancon", "ancon-auto")', '("elrr",)'), "did you mean 'elr'"),
        (
            f"{MODULE}\n    def targets(self, visit):\n        return visit.probabilities\n",
            'a composition with AnCon would replace the class.s own `targets`; leave all but "elr" out of `composes`',
        ),
    ],
)
def test_a_broken_package_is_told_only_when_its_method_is_asked_for(package, module, message):
    before = methods.names()
    package(module)
    assert methods.names() == before
    assert methods.settings().keys() >= methods.settings("ancon").keys()
    assert methods.create("gce+ancon", **SIZES) is not None
    for name in ("focal", "focal+ancon"):
        with one_line(f"method `focal` of package my-methods cannot be used: .*{message}") as raised:
            methods.create(name, **SIZES)
        assert "\n" not in str(raised.value)


def test_a_method_may_be_registered_without_a_package_and_again(package):
    def define():
        @methods.register("of-a-notebook", composes=("ancon-auto",))
        class OfANotebook(methods.Method):
            training_defaults = {"adapted": "all"}  # noqa: RUF012
            power: int = methods.option(1, ge=0, help="of nothing")

            def objective(self, visit, targets):
                return (visit.logits * targets).sum() ** self.power

        return OfANotebook

    for _ in range(2):
        define()
    assert methods.create("of-a-notebook+ancon-auto", **SIZES, power=2).ensemble is not None
    of_the_rule = methods.training_defaults("ancon-auto")
    assert methods.training_defaults("of-a-notebook+ancon-auto") == {"adapted": "all", **of_the_rule}
    with one_line(r"did you mean 'of-a-notebook\+ancon-auto'"):
        methods.create("of-a-notebook+ancon", **SIZES)
    with one_line("'of-a-notebook' is taken"):
        methods.register("of-a-notebook")(type("Other", (methods.Method,), {}))
