"""``python -m tests.interfaces.doors.record [SCENE ...]``: write what the scenes tell now to ``recorded/``."""

import os
import sys
import tempfile
import time
from pathlib import Path

import torch

from tests.interfaces.doors.commands import SCENES
from tests.interfaces.doors.world import World

RECORDED = Path(__file__).with_name("recorded")


def path(name):
    return RECORDED / f"{name.replace(' ', '-').replace(',', '')}.txt"


def told(name, world):
    return world.steady(SCENES[name](world))


def main(names):
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        for name in names or SCENES:
            started = time.process_time()
            path(name).write_text("".join(line + "\n" for line in told(name, world)))
            print(f"{time.process_time() - started:5.1f} s  {name}", file=sys.stderr)
    if not names:
        for old in {*RECORDED.iterdir()} - {path(name) for name in SCENES}:
            os.remove(old)


if __name__ == "__main__":
    main(sys.argv[1:])
