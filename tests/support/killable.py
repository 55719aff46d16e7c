"""Commands in processes that a test kills: a fork server loads this module, and with it everything slow, once."""

import itertools
import multiprocessing
import os
import signal
import socket
import sys
import time

import timm  # noqa: F401
import torch
import torchvision.transforms  # noqa: F401

from tests.support import outcomes
from tests.support.outcomes import differences as differences
from tllib_ancon.cli import commands  # noqa: F401
from tllib_ancon.cli.main import main
from tllib_ancon.runtime.processes import join, leave
from tllib_ancon.training.trainer import Trainer

torch.set_num_threads(1)


def server():
    """What starts processes that have imported all this."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def start(
    arguments,
    events_until_kill=None,
    errors=None,
    launch=None,
):
    """Start ``tllib-ancon ARGUMENTS``; it kills itself when so many steps and file operations have begun.

    Args:
        errors: gets what it writes to standard error; it is in a group of processes of its own then
        launch: variables that a launcher of many processes sets
    """
    process = server().Process(target=run, args=(arguments, events_until_kill, errors, launch))
    process.start()
    return process


def start_in_two(arguments, errors=None, events_until_second_is_killed=None):
    """The command in two processes, as a launcher would start them; ``errors/RANK.txt`` gets what each complains of."""
    processes = []
    for launch, events in zip(launched_in_two(), (None, events_until_second_is_killed), strict=True):
        written = None if errors is None else errors / f"{launch['RANK']}.txt"
        processes.append(start(arguments, events, written, launch))
    return processes


def launched_in_two():
    """The variables that a launcher sets for each of two processes."""
    both = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [{**both, "RANK": rank, "LOCAL_RANK": rank} for rank in "01"]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def finish_in_two(arguments):
    _finish(start_in_two(arguments))


def results_in_two(function, *args, folder):
    """What ``function(*args)`` returns in each of two processes that are joined: a value that ``torch.save`` takes."""
    files = [folder / f"{rank}.pt" for rank in (0, 1)]
    launches = zip(launched_in_two(), files, strict=True)
    processes = [server().Process(target=_keep_result, args=(*launch, function, args)) for launch in launches]
    for process in processes:
        process.start()
    _finish(processes)
    return [torch.load(file, weights_only=False) for file in files]


def _keep_result(launch, file, function, args):
    os.environ.update(launch)
    join()
    torch.save(function(*args), file)
    leave()


def _finish(processes):
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]


def run(
    arguments,
    events_until_kill,
    errors,
    launch,
):
    os.environ.update(launch or {})
    if errors is not None:
        os.setsid()
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    multiprocessing.set_start_method("fork", force=True)  # of data-loader workers
    if events_until_kill is not None:
        events = itertools.count(1)

        def event():
            if next(events) == events_until_kill:
                os.kill(os.getpid(), signal.SIGKILL)

        Trainer._learn = _before(event, Trainer._learn)
        os.fsync = _before(event, os.fsync)
        os.replace = _before(event, os.replace)
    sys.exit(main(arguments))


def _before(event, function):
    return lambda *args: (event(), function(*args))[1]


def wait_for(happened):
    """Without a deadline of its own: the machine may be busy, and the suite ends a test that takes too long."""
    while not happened():
        time.sleep(0.005)


def last_epoch(run):
    """The last that is kept, from 0; -1 for none."""
    metrics = run / "metrics.jsonl"
    if not metrics.is_file():
        return -1
    return len(metrics.read_text().splitlines()) - 1


def outcome(run):
    """All that a finished run holds except how fast it was, and its settings, which name its folder."""
    return outcomes.outcome(run, "checkpoints/*.pth", "metrics.jsonl", "result.json", "**/*.npz")


def weights(run, name="latest.pth"):
    return torch.load(run / "checkpoints" / name, weights_only=True)
