"""A command that a signal or a full disk ends, and that is given again, ends as if nothing had been."""

import random
import signal
from dataclasses import dataclass
from pathlib import Path

from tests.faults.commands import BY_LAUNCHER, COMMANDS, SLOW, Place
from tests.faults.outcomes import differences, outcome
from tests.faults.processes import Ended, Kill, run

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
ON_A_FULL_DISK = ("pretrain, ERM", "adapt, AnCon", "adapt, while a cache is built", "predict")


@dataclass(frozen=True)
class Reference:
    """What an undisturbed command left, how long it took, and what it wrote in which order."""

    folder: Path
    seconds: float
    writes: list[str]

    def write(self, turn: int, seed: int, generator: random.Random) -> int:
        """The number of a write after the first epoch, where one is repeated: each line has its turn; 0 for none."""
        again = next((index for index, line in enumerate(self.writes) if line in self.writes[:index]), 0)
        lines = sorted(set(self.writes[again:]))
        if not lines:
            return 0
        random.Random(seed).shuffle(lines)
        line = lines[turn % len(lines)]
        return generator.choice(
            [index for index, other in enumerate(self.writes, 1) if other == line and index > again]
        )


def reference(name: str, place: Place) -> Reference:
    """Of a command, made when it is first asked for, and timed when all that it reads has been read before.

    Raises:
        RuntimeError: it fails without a fault, or leaves something else when it is made a second time
    """
    folder = place.folder / "references" / place.planted / f"{list(COMMANDS).index(name):02d}"
    seconds, writes = folder.with_suffix(".seconds"), folder.with_suffix(".writes")
    if not seconds.exists():
        for again in (False, True):
            place.emptied()
            ended = run(place.words(COMMANDS[name]), place)
            if ended.status != 0:
                raise RuntimeError(f"{name} fails undisturbed: {ended.errors}")
            if not again:
                folder.parent.mkdir(parents=True, exist_ok=True)
                place.work.rename(folder)
        if differences(outcome(folder), outcome(place.work)):
            raise RuntimeError(f"{name} leaves something else each time")
        place.writes.rename(writes)
        seconds.write_text(str(ended.seconds))
    return Reference(folder, float(seconds.read_text()), writes.read_text().splitlines())


def disturb(number: int, seed: int, place: Place, names: list[str], at_writes: bool = False) -> dict[str, object]:
    """The kill of this number: which command, signal, target and time follow from it. Every other one is a SIGKILL at a
    write after the first epoch, or every one is a signal there. Returns what happened, for the table."""
    generator = random.Random(f"{seed} {number}")
    (name,) = generator.choices(names, [0.25 if name in SLOW else 1.0 for name in names])
    before, group = reference(name, place), generator.random() < 0.5
    is_at_write = bool(number % 2) or at_writes
    write = before.write(number // 2, seed, generator) if is_at_write else 0
    kind = signal.SIGKILL if number % 2 else generator.choice(SIGNALS)
    after = 0.0 if write else round(generator.uniform(0, before.seconds), 3)
    kill = Kill(kind, group, after, write)
    place.emptied()
    words = place.words(COMMANDS[name])
    ended = run(words, place, kill)
    return {
        "command": name,
        "signal": kill.number.name,
        "group": group,
        "after": kill.after,
        "write": before.writes[write - 1] if write else "",
        "finished": not ended.hit,
        "no_effect": ended.hit and ended.status == 0,
        **ended.record(words[0] == BY_LAUNCHER or _is_right(ended, kill)),
        **_given_again(name, ended, before, place),
    } | ({} if group else {"left": False})


def sizes(name: str, place: Place) -> list[int]:
    """Sizes at which a disk is full, in bytes: none, one, half of each file of a command, and all but its last byte."""
    files = {path.stat().st_size for path in reference(name, place).folder.rglob("*") if path.is_file()}
    return sorted({0, 1, *(size // 2 for size in files), *(size - 1 for size in files if size)})


def fill(name: str, size: int, place: Place) -> dict[str, object]:
    """Run a command where no file can grow beyond ``size``, then where it can. Returns what happened, for the table."""
    before = reference(name, place)
    place.emptied()
    ended = run(place.words(COMMANDS[name]), place, largest_file=size)
    right = ended.status in (0, 2) and ended.in_one_line
    happened = {"command": name, "size": size, "finished": ended.status == 0, **ended.record(right)}
    return happened | _given_again(name, ended, before, place)


def _given_again(name: str, ended: Ended, before: Reference, place: Place) -> dict[str, object]:
    """What the same command makes of what a fault left, unless it had finished; one that refuses to replace a whole
    result has nothing to continue."""
    again = ended if ended.status == 0 else run(place.words(COMMANDS[name]), place)
    differing = differences(outcome(before.folder), outcome(place.work))
    status = again.status if differing else 0
    return {"continued": status, "errors": again.errors if status else "", "differing": differing}


def _is_right(ended: Ended, kill: Kill) -> bool:
    """Whether a command says why it ended, as far as the signal lets it."""
    if ended.status == -kill.number:  # before it could handle any
        return kill.number == signal.SIGKILL or not ended.errors
    return ended.status == 0 or (ended.status == 128 + kill.number and "Traceback" not in ended.errors)
