"""Scenes: what a person does, and what comes of it, line by line."""

import json

from tests.doors.telling import folder
from tests.doors.world import FILES, command

SCENES = {}


def scene(function):
    SCENES[function.__name__] = function
    return function


def script(lines):
    """What commands say one after the other in a folder of their own, and then every file in it."""

    def tell(world):
        with world.own_folder() as own:
            for line in lines:
                yield f"$ {line}"
                yield from command(*world.words(line)).lines()
            yield from folder(own)

    return tell


for name, lines in json.loads((FILES / "scripts.json").read_text()).items():
    SCENES[name] = script(lines)
