"""A command that a signal ends at a random time, and that is given again, ends as if nothing had been."""

from __future__ import annotations

import random
import signal
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults.commands import COMMANDS, SLOW, Place
from benchmarks.faults.outcomes import differences, outcome
from benchmarks.faults.processes import Ended, Kill, run

SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
BY_LAUNCHER = "-m"


@dataclass(frozen=True)
class Reference:
    """What an undisturbed command left, and how long it took."""

    folder: Path
    seconds: float


def reference(name: str, place: Place) -> Reference:
    """Of a command, made when it is first asked for, and timed when all that it reads has been read before.

    Raises:
        RuntimeError: it fails without a fault, or leaves something else when it is made a second time
    """
    folder = place.folder / "references" / f"{list(COMMANDS).index(name):02d}"
    seconds = folder.with_suffix(".seconds")
    if not seconds.exists():
        _undisturbed(name, place)
        folder.parent.mkdir(exist_ok=True)
        place.work.rename(folder)
        again = _undisturbed(name, place)
        if differences(outcome(folder), outcome(place.work)):
            raise RuntimeError(f"{name} leaves something else each time")
        seconds.write_text(str(again.seconds))
    return Reference(folder, float(seconds.read_text()))


def _undisturbed(name: str, place: Place) -> Ended:
    place.emptied()
    ended = run(COMMANDS[name](place))
    if ended.status != 0:
        raise RuntimeError(f"{name} fails undisturbed: {ended.errors}")
    return ended


def disturb(number: int, seed: int, place: Place, names: list[str]) -> dict[str, object]:
    """The kill of this number: which command, signal, time and target follow from it.

    Returns: what happened, for the table
    """
    generator = random.Random(f"{seed} {number}")
    (name,) = generator.choices(names, [0.25 if name in SLOW else 1.0 for name in names])
    before = reference(name, place)
    kill = Kill(generator.uniform(0, before.seconds), generator.choice(SIGNALS), generator.random() < 0.5)
    place.emptied()
    words = COMMANDS[name](place)
    ended = run(words, kill)
    return {
        "command": name,
        "signal": kill.number.name,
        "group": kill.group,
        "after": round(kill.after, 3),
        "status": ended.status,
        "finished": ended.status == 0,
        "wrong_exit": "" if _is_right(ended, kill, words[0] == BY_LAUNCHER) else f"{ended.status}: {ended.errors}",
        "left": ended.left and kill.group,
    } | given_again(name, ended, before, place)


def given_again(name: str, ended: Ended, before: Reference, place: Place) -> dict[str, object]:
    """What the same command makes of what a fault left, unless it had finished; one that refuses to replace a whole
    result has nothing to continue.

    Returns: what happened, for the table
    """
    again = ended if ended.status == 0 else run(COMMANDS[name](place))
    differing = differences(outcome(before.folder), outcome(place.work))
    status = again.status if differing else 0
    return {"continued": status, "errors": again.errors if status else "", "differing": differing}


def _is_right(ended: Ended, kill: Kill, launched: bool) -> bool:
    """Whether a command says why it ended, as far as the signal lets it; a launcher has words of its own."""
    if launched or ended.status == 0:
        return True
    if ended.status == -kill.number:  # before it could handle any
        return kill.number == signal.SIGKILL or not ended.errors
    return ended.status == 128 + kill.number and "Traceback" not in ended.errors
