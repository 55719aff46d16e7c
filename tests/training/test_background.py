from __future__ import annotations

import threading

import pytest

from tllib_ancon.training.background import Background


def test_work_is_done_in_order_while_the_caller_goes_on() -> None:
    background, done, go = Background(), [], threading.Event()
    background.do(lambda: (go.wait(10), done.append(1)))
    background.do(lambda: done.append(2))
    assert done == []
    go.set()
    background.wait()
    assert done == [1, 2]


def test_nothing_is_done_after_an_error_which_every_wait_raises() -> None:
    background, done = Background(), []
    background.do(lambda: 1 / 0)
    background.do(lambda: done.append(2))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            background.wait()
    background.do(lambda: done.append(3))
    with pytest.raises(ZeroDivisionError):
        background.wait()
    background.close()
    assert done == []


def test_closing_waits() -> None:
    background, done, go = Background(), [], threading.Event()
    background.do(lambda: (go.wait(10), done.append(1)))
    threading.Timer(0.05, go.set).start()
    background.close()
    assert done == [1]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("background")]


def test_to_wait_for_nothing() -> None:
    background = Background()
    background.wait()
    background.close()
