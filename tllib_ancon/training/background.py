"""Work that is done while the caller goes on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Background:
    """One thread that does what it is given in the order given; after the first error it does nothing more of it.

    The process does not end before its thread has, unless it is killed.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="background")
        self._last: Future[None] | None = None

    def do(self, work: Callable[[], object]) -> None:
        """Do this after all that was given before."""
        before = self._last

        def follow() -> None:
            if before is not None:
                before.result()
            work()

        self._last = self._executor.submit(follow)

    def wait(self) -> None:
        """Until all is done.

        Raises:
            BaseException: the first error of what was given
        """
        if self._last is not None:
            self._last.result()

    def close(self) -> None:
        """Wait, and end the thread; an error of it is not raised."""
        self._executor.shutdown()
