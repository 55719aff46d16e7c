"""Scenes: what a person does, and what comes of it, line by line."""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.doors.telling import folder
from tests.doors.world import FILES, World, command, finished, interrupted_after

Scene = Callable[[World], Iterable[str]]
SCENES: dict[str, Scene] = {}


def scene(function: Scene) -> Scene:
    SCENES[function.__name__] = function
    return function


def in_one_go(world: World, words: list[str]) -> Path:
    """The directory of a run."""
    whole = world.folder / "whole"
    shutil.rmtree(whole, ignore_errors=True)
    finished(*words, "--log", whole)
    return whole


def resumed(world: World, words: list[str]) -> Path:
    """The directory of a run that is cut off after its first epoch and continued: by the bit that of one in one go."""
    whole, cut = in_one_go(world, words), world.folder / "cut"
    shutil.rmtree(cut, ignore_errors=True)
    with interrupted_after(2, cut / "metrics.jsonl"):
        assert command(*words, "--log", cut).status == 130
    assert not (cut / "result.json").exists()
    finished(*words, "--log", cut)
    bits = [world.steady(folder(log, exact=True)) for log in (whole, cut)]
    assert bits[0] == bits[1]
    return cut


def run(make: Callable[[World, list[str]], Path], line: str) -> Scene:
    """A run directory; of an adaptation's settings those that are not AnCon's."""

    def tell(world: World) -> Iterable[str]:
        name, *more = world.words(line)
        length = ["--epochs", 3] if name == "pretrain" else ["--epochs", 4, "--checkpoint", world.source]
        usual = world.usual if name == "adapt" else ()
        directory = make(world, [name, *world.images, "-t", "dark", *map(str, length), *more])
        return [told for told in folder(directory) if told not in usual]

    return tell


def script(lines: list[str]) -> Scene:
    """What commands say one after the other in a folder of their own, and then every file in it."""

    def tell(world: World) -> Iterator[str]:
        with world.own_folder() as own:
            for line in lines:
                yield f"$ {line}"
                yield from command(*world.words(line)).lines()
            yield from folder(own)

    return tell


for make, key in ((resumed, "resumed"), (in_one_go, "in one go")):
    SCENES |= {name: run(make, line) for name, line in json.loads((FILES / "runs.json").read_text())[key].items()}
SCENES |= {name: script(lines) for name, lines in json.loads((FILES / "scripts.json").read_text()).items()}
