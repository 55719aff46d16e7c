"""Scenes: what a person does, and what comes of it, line by line."""

from tests.interfaces.doors.telling import folder
from tests.interfaces.doors.world import FILES, command
from tests.json_files import read_json

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


for name, lines in read_json(FILES / "scripts.json").items():
    SCENES[name] = script(lines)
