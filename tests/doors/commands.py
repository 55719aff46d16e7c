"""Scenes of the commands that use a finished run, of the help texts, and of the Python contract."""

import inspect
import json
import os
import re
import shlex
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

import tllib_ancon
from tests.certify.serving import Visitor
from tests.domains_on_disk import write_domain
from tests.doors.scenes import SCENES, scene  # noqa: F401 - of both files
from tests.doors.telling import content, folder, values
from tests.doors.world import FILES, Said, World, command, finished
from tests.in_this_process import runs_here
from tllib_ancon import AdaptConfig, PretrainConfig, methods
from tllib_ancon.measures.disagreement import DisagreementTest


@scene
def usual_settings(world: World) -> Iterable[str]:
    return sorted(world.usual)


@scene
def page(world: World) -> Iterator[str]:
    """The page of ``certify``, as a browser asks for it."""
    log = world.folder / "asked"
    finished(*world.words("adapt IMAGES -t dark --checkpoint SOURCE --epochs 4 --lr 0.1 --log"), log)
    said, words = Said(), ("certify", log, "-j", 0, "--page", "--port", 0)
    thread = threading.Thread(target=command, args=words, kwargs={"said": said})
    thread.start()
    while "http://" not in said.out.getvalue():
        assert thread.is_alive(), said.lines()
        time.sleep(0.01)
    visitor = Visitor(re.search(r"http://\S+/", said.out.getvalue())[0])
    answered = visitor.state()["answered"]
    for path, body in (
        *((path, None) for path in ("", "page.js", "page.css", "image/0", "image/999", "../wrong/state", "state")),
        ("answer", {"answered": answered, "answer": "another"}),
        ("answer", {"answered": answered, "answer": 0}),
        ("undo", {"answered": answered + 1}),
        ("answer", {"answered": answered, "answer": "blue"}),
        ("answer", ["no", "request"]),
        ("finish", {}),
    ):
        method, text = ("GET", "") if body is None else ("POST", json.dumps(body))
        answer, content = visitor.get(path, method=method, body=text)
        kind = answer.getheader("content-type")
        name = f"{method} {path}{text} -> {answer.status} {kind}"
        yield name if kind != "application/json" else f"{name}: {' '.join(values(json.loads(content)))}"
    thread.join(240)
    yield from (f"page: {line}".replace(visitor.address, "ADDRESS") for line in said.lines())


@scene
def benchmark_and_report(world: World) -> Iterator[str]:
    root, plan, out = world.folder / "office", FILES / "plan.toml", world.folder / "runs"
    root.mkdir()
    for seed, name in enumerate(("Art", "Clipart", "Product")):
        write_domain(root, name, 60, seed=seed, brightness=1 - 0.25 * seed)
    words = ["benchmark", plan, root, "--out", out]
    yield from (f"dry: {line}" for line in command(*words, "--dry-run").lines())
    printed = finished(*words, "--print-commands").out.getvalue().splitlines()
    yield from printed
    for line in printed:
        finished(*shlex.split(line)[1:], "--quiet")
    yield from (f"benchmark: {line}" for line in command(*words).lines())
    yield from (f"benchmark.json: {line}" for line in content(out / "benchmark.json"))
    for name, more in (("report", []), ("beside", ["--paper", "officehome"])):
        said = finished("report", out, *more, "--out", world.folder / name)
        yield said.out.getvalue().splitlines()[-1]
        kept = ("report.md", "accuracy.") if more else ""
        yield from (line for line in folder(world.folder / name) if line.startswith(kept))


@scene
def demo(world: World) -> Iterable[str]:
    """On data that lie there already: a few noisy pictures of ten classes."""
    out = world.folder / "demo"
    for seed, name in enumerate(("rendered", "handwritten")):
        (out / "data").mkdir(parents=True, exist_ok=True)
        write_domain(out / "data", name, 96, seed=seed, brightness=1 - 0.4 * seed, side=32)
    short = "--source-epochs", 2, "--epochs", 2, "--jobs", 1
    with runs_here():
        said = command("demo", "--out", out, "--seeds", 0, 1, *short, "--quiet", "--full")
    timed = [re.sub(r"^out: \d+ s;", "out: … s;", line) for line in said.lines()]
    return [
        *timed,
        *sorted(path.name for path in out.iterdir()),
        *(f"summary.json: {line}" for line in content(out / "summary.json")),
    ]


@scene
def helps(world: World) -> Iterator[str]:
    """Of every flag its names, its value, range and default; a star before those of the short text."""
    listed = re.findall(r"^    (\w+)", command("--help").out.getvalue(), re.MULTILINE)
    with patch.dict(os.environ, COLUMNS="1000"):
        for words in ([], *([name] for name in listed), ["script", "cdan.py", "--method", "ancon"]):
            short, full = (command(*words, flag).out.getvalue() for flag in ("--help", "--help-all"))
            known = {entry.split("  ")[0] for entry in _entries(short)}
            yield full.splitlines()[0]
            for entry in _entries(full):
                names, _, text = entry.partition("  ")
                note = re.search(r"\([^()]*\)$", text)
                yield f"{'*' if names in known else ' '} {names} {note[0] if note else ''}".rstrip()


def _entries(text: str) -> list[str]:
    joined = re.sub(r"\n {20,}", "  ", text)
    return [line.strip() for line in joined.splitlines() if re.match(r" {2,4}\S", line)]


@scene
def contract(world: World) -> Iterator[str]:
    yield f"names = {sorted(tllib_ancon.__all__)}"
    yield f"methods = {methods.names()}"
    parts = [getattr(tllib_ancon, name) for name in sorted(tllib_ancon.__all__)]
    for part in [*parts, methods.create, methods.Method, methods.Visit, DisagreementTest]:
        if callable(part) and part is not tllib_ancon.UserError:
            yield _signature(part)
    yield from values(AdaptConfig().to_dict(), "AdaptConfig()")
    for method in ("erm", "cdan", "mdd"):
        yield from values(PretrainConfig(method=method).to_dict(), f"PretrainConfig({method})")
    yield from _adapted_in_memory()
    test = DisagreementTest(0.05, 0.0, disagreements=30, images=100)
    for number in range(12):
        test.update(1 if number != 3 else 0)
        yield f"DisagreementTest: {number + 1} answers, {test.verdict}, {test.settled}, {test.interval}"


def _signature(part: Any) -> str:
    parameters = inspect.signature(part).parameters.values()
    shown = (str(p).partition(":")[0] + ("" if p.default is p.empty else f"={_name(p.default)}") for p in parameters)
    return f"{part.__name__}({', '.join(shown)})"


def _name(default: Any) -> str:
    return default.__name__ if callable(default) else repr(default)


def _adapted_in_memory() -> Iterator[str]:
    """Own network, own data set."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network.append(nn.Linear(8, 3))
    generator = torch.Generator().manual_seed(1)
    images = torch.utils.data.TensorDataset(torch.randn(40, 3, 8, 8, generator=generator))
    result = tllib_ancon.adapt(network, images, method="ancon", epochs=2, batch_size=8, seed=0, workers=0, quiet=True)
    yield f"AdaptationResult: {sorted(name for name in vars(result) if not name.startswith('_'))}"
    yield from values(result.metrics, "adapt(network, images).metrics")
    yield from values(dict(result.model.state_dict()), "adapt(network, images).model")
    found = tllib_ancon.predict(result.model, images)
    shown = {name: np.asarray(getattr(found, name)) for name in ("probabilities", "labels", "indices")}
    yield from values({**shown, "paths": found.paths}, "predict(model, images)")
