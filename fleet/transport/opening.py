"""A second carrier that is opened while something else is done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from fleet.transport.base import Carrier


class Opening:
    """Opens in a thread; `result` is for one taker, or `drop` closes what comes of it."""

    def __init__(self, opens: Callable[[], Carrier]) -> None:
        self._future: Future[Carrier] = Future()
        threading.Thread(target=self._work, args=(opens,), daemon=True, name="fleet-ssh").start()

    def result(self) -> Carrier:
        """Wait for it; the taker closes it. Raises what opening raised."""
        return self._future.result()

    def drop(self) -> None:
        """Nobody wants it any more."""
        self._future.add_done_callback(_close)

    def _work(self, opens: Callable[[], Carrier]) -> None:
        try:
            self._future.set_result(opens())
        except BaseException as error:  # noqa: BLE001 - raised where it is wanted
            self._future.set_exception(error)


def _close(future: Future[Carrier]) -> None:
    if future.exception() is None:
        future.result().close()
