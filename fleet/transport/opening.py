"""A second carrier that opens in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from fleet.transport.base import Carrier


class Opening:
    """A carrier that opens in a thread. Call `result` once, or `drop` to close it."""

    def __init__(self, opens: Callable[[], Carrier]) -> None:
        self._future: Future[Carrier] = Future()
        threading.Thread(target=self._work, args=(opens,), daemon=True, name="fleet-ssh").start()

    def result(self) -> Carrier:
        """Wait for the carrier, which the caller closes. Raises the error of the opening."""
        return self._future.result()

    def drop(self) -> None:
        """Close the carrier when it is open, because it is not needed."""
        self._future.add_done_callback(_close)

    def _work(self, opens: Callable[[], Carrier]) -> None:
        try:
            self._future.set_result(opens())
        except BaseException as error:  # noqa: BLE001 - raised by `result`
            self._future.set_exception(error)


def _close(future: Future[Carrier]) -> None:
    if future.exception() is None:
        future.result().close()
