"""Scenes of the commands that use a finished run and of the laboratory."""

import re
import shlex
import threading
import time

from tests.certify.serving import Visitor
from tests.domains_on_disk import write_domain
from tests.interfaces.doors.scenes import SCENES, scene  # noqa: F401 - of both files
from tests.interfaces.doors.telling import content, folder, values
from tests.interfaces.doors.world import FILES, Said, command, finished
from tests.support.in_this_process import runs_here


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
