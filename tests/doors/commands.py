"""Scenes of the commands that use a finished run, of the help texts, and of the Python contract."""

import inspect
import os
import re
import shlex
import threading
import time
from unittest.mock import patch

import torch

import tllib_ancon
from tests.certify.serving import Visitor
from tests.domains_on_disk import write_domain
from tests.doors.scenes import SCENES, scene  # noqa: F401 - of both files
from tests.doors.telling import content, folder, values
from tests.doors.world import FILES, Said, command, finished
from tests.networks import Net
from tests.support.in_this_process import runs_here
from tllib_ancon import AdaptConfig, PretrainConfig, methods
from tllib_ancon.measures.disagreement import DisagreementTest


@scene
def page(world):
    """What ``certify`` prints while a person labels on its page."""
    log = world.folder / "asked"
    finished(*world.words("adapt IMAGES -t dark --checkpoint SOURCE --epochs 4 --lr 0.1 --log"), log)
    said = Said()
    words = ("certify", log, "-j", 0, "--page", "--port", 0)
    thread = threading.Thread(target=command, args=words, kwargs={"said": said})
    thread.start()
    while "http://" not in said.out.getvalue():
        assert thread.is_alive(), said.lines()
        time.sleep(0.01)
    visitor = Visitor(re.search(r"http://\S+/", said.out.getvalue())[0])
    yield f"state: {' '.join(values(visitor.state()))}"
    _, state = visitor.post("answer", {"answered": visitor.state()["answered"], "answer": "another"})
    yield f"an answer: {' '.join(values(state))}"
    visitor.post("finish", {})
    thread.join()
    for line in said.lines():
        yield f"page: {line}".replace(visitor.address, "ADDRESS")


@scene
def benchmark_and_report(world):
    root = world.folder / "office"
    out = world.folder / "runs"
    root.mkdir()
    for seed, name in enumerate(("Art", "Clipart", "Product")):
        write_domain(root, name, 60, seed=seed, brightness=1 - 0.25 * seed)
    words = ["benchmark", FILES / "plan.toml", root, "--out", out]
    for line in command(*words, "--dry-run").lines():
        yield f"dry: {line}"
    printed = finished(*words, "--print-commands").out.getvalue().splitlines()
    yield from printed
    for line in printed:
        finished(*shlex.split(line)[1:], "--quiet")
    for line in command(*words).lines():
        yield f"benchmark: {line}"
    for line in content(out / "benchmark.json"):
        yield f"benchmark.json: {line}"
    said = finished("report", out, "--out", world.folder / "report")
    yield said.out.getvalue().splitlines()[-1]
    yield from folder(world.folder / "report")
    said = finished("report", out, "--paper", "officehome", "--out", world.folder / "beside")
    yield said.out.getvalue().splitlines()[-1]
    for line in folder(world.folder / "beside"):
        if line.startswith(("report.md", "accuracy.")):
            yield line


@scene
def demo(world):
    """On data that lie there already: a few noisy pictures of ten classes."""
    out = world.folder / "demo"
    for seed, name in enumerate(("rendered", "handwritten")):
        (out / "data").mkdir(parents=True, exist_ok=True)
        write_domain(out / "data", name, 96, seed=seed, brightness=1 - 0.4 * seed, side=32)
    short = "--source-epochs", 2, "--epochs", 2, "--jobs", 1
    with runs_here():
        said = command("demo", "--out", out, "--seeds", 0, 1, *short, "--quiet", "--full")
    for line in said.lines():
        yield re.sub(r"^out: \d+ s;", "out: … s;", line)
    yield from sorted(path.name for path in out.iterdir())
    for line in content(out / "summary.json"):
        yield f"summary.json: {line}"


@scene
def helps(world):
    """Of every flag its names, its value, range and default; a star before those of the short text."""
    listed = re.findall(r"^    (\w+)", command("--help").out.getvalue(), re.MULTILINE)
    with patch.dict(os.environ, COLUMNS="1000"):
        for words in ([], *([name] for name in listed), ["script", "cdan.py", "--method", "ancon"]):
            full = command(*words, "--help-all").out.getvalue()
            yield full.splitlines()[0]
            short = command(*words, "--help").out.getvalue()
            in_short = {entry.partition("  ")[0] for entry in _entries(short)}
            for entry in _entries(full):
                names, _, text = entry.partition("  ")
                star = "*" if names in in_short else " "
                note = re.search(r"\([^()]*\)$", text)
                yield f"{star} {names} {note[0] if note else ''}".rstrip()


def _entries(text):
    joined = re.sub(r"\n {20,}", "  ", text)
    return [line.strip() for line in joined.splitlines() if re.match(r" {2,4}\S", line)]


@scene
def contract(world):
    names = sorted(tllib_ancon.__all__)
    yield f"names = {names}"
    yield f"methods = {methods.names()}"
    parts = [getattr(tllib_ancon, name) for name in names if name != "UserError"]
    for part in [*parts, methods.create, methods.Method, methods.Visit, DisagreementTest]:
        if callable(part):
            yield _signature(part)
    yield from values(AdaptConfig().to_dict(), "AdaptConfig()")
    for method in ("erm", "cdan", "mdd"):
        yield from values(PretrainConfig(method=method).to_dict(), f"PretrainConfig({method})")
    for method in methods.names():
        options = methods.all_options(method, {}) | methods.training_defaults(method)
        yield f"{method}: {' '.join(values(options))}"
    yield from _adapted_in_memory()


def _signature(part):
    shown = []
    for parameter in inspect.signature(part).parameters.values():
        name = str(parameter).partition(":")[0]
        default = parameter.default
        if default is parameter.empty:
            shown.append(name)
        else:
            shown.append(f"{name}={default.__name__ if callable(default) else repr(default)}")
    return f"{part.__name__}({', '.join(shown)})"


def _adapted_in_memory():
    """Own network, own data set."""
    generator = torch.Generator().manual_seed(1)
    images = torch.utils.data.TensorDataset(torch.randn(40, 3, 8, 8, generator=generator))
    quick = {"epochs": 2, "batch_size": 8, "seed": 0, "workers": 0, "quiet": True}
    result = tllib_ancon.adapt(Net(3), images, method="ancon", **quick)
    yield f"AdaptationResult: {sorted(name for name in vars(result) if not name.startswith('_'))}"
    found = tllib_ancon.predict(result.model, images)
    yield f"Predictions: {sorted(name for name in vars(found) if not name.startswith('_'))}"
