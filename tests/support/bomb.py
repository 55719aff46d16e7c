"""An object whose unpickling writes a file."""

from pathlib import Path


class Bomb:
    def __init__(self, victim):
        self.victim = victim

    def __reduce__(self):
        return Path.touch, (self.victim,)
