"""The public names, methods, commands and settings are those of `contract.txt`.

After a deliberate change `python -m tests.interfaces.test_contract` writes the file again; read the difference.
"""

import inspect
from pathlib import Path

import tllib_ancon
from tllib_ancon import AdaptConfig, PretrainConfig, methods
from tllib_ancon.cli.main import COMMANDS
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.config.settings import settings_of

RECORDED = Path(__file__).with_name("contract.txt")


def contract():
    yield "[commands]"
    yield from COMMANDS
    yield "[names]"
    for name in sorted(tllib_ancon.__all__):
        yield _signature(name, getattr(tllib_ancon, name))
    yield "[methods]"
    for name in methods.names():
        yield " ".join([name, *methods.settings(name)])
    for owner in (AdaptConfig, PretrainConfig, PredictConfig):
        yield f"[{owner.__name__}]"
        for name, field in settings_of(owner).items():
            yield f"{name} = {field.default!r}"


def _signature(name, part):
    if not inspect.isfunction(part):
        return name
    parameters = [str(parameter).partition(":")[0] for parameter in inspect.signature(part).parameters.values()]
    return f"{name}({', '.join(parameters)})"


def test_the_contract_is_the_recorded_one():
    assert RECORDED.read_text().splitlines() == [*contract()]


if __name__ == "__main__":
    RECORDED.write_text("\n".join(contract()) + "\n")
