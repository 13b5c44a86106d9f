"""Helpers of all transports for the three streams of a command."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from fleet.model.errors import DeviceError, FleetError
from fleet.model.files import Chunk, Span
from fleet.transport.base import Carrier, Output, Traffic

KEPT_BYTES = 64 << 20  # the largest answer to fleet is a profile of some MB

# Errors of a stream after the other side is gone. ValueError: the pipe was closed by this side.
BROKEN: tuple[type[Exception], ...] = (OSError, EOFError, ValueError)


class Collector:
    """A receiver of one output stream that forwards its chunks or stores them.

    An error in a callback is stored and raised by `check()` in the caller's thread. A failing
    renderer therefore cannot block the device by not reading.
    """

    def __init__(self, traffic: Traffic, forward: Output | None) -> None:
        self._traffic = traffic
        self._forward = forward
        self._kept: list[bytes] = []
        self._size = 0
        self._failure: Exception | None = None

    def take(self, chunk: bytes) -> None:
        """Receive one chunk, in order."""
        self._traffic.add(received=len(chunk))
        if self._forward is None:
            self._size += len(chunk)
            if self._size <= KEPT_BYTES:
                self._kept.append(chunk)
            else:
                self._failure = DeviceError(
                    f"the device printed more than {KEPT_BYTES >> 20} MiB, but fleet expected a "
                    "short answer",
                    hint="check whether a login script on the device prints text: ~/.bashrc",
                )
        elif self._failure is None:
            try:
                self._forward(chunk)
            except Exception as error:  # noqa: BLE001 - raised again by check()
                self._failure = error

    def check(self) -> None:
        """Raise the error of a callback."""
        if self._failure is not None:
            raise self._failure

    @property
    def taken(self) -> bytes:
        """The stored bytes."""
        return b"".join(self._kept)


class Feeder:
    """A thread that sends `source` through `write` and then calls `finish`.

    `move` sends a Span without reading it here; without `move` the span is read. `broken` are the
    exceptions of `write` and `finish` after the other side is gone.

    A device that stops reading (OSError of `write`) ends the feeding without an error, since the
    exit status reports it. `check()` raises an error of the source itself.
    """

    def __init__(
        self,
        traffic: Traffic,
        source: Iterable[Chunk],
        write: Callable[[bytes], object],
        finish: Callable[[], object],
        move: Callable[[Span], object] | None = None,
        *,
        broken: tuple[type[Exception], ...] = BROKEN,
    ) -> None:
        self._traffic = traffic
        self._source = iter(source)
        self._write = write
        self._finish = finish
        self._move = move
        self._broken = broken
        self._stopped = False
        self._failure: Exception | None = None
        self.thread = start(self._work)

    def stop(self) -> None:
        """Stop sending."""
        self._stopped = True

    def check(self) -> None:
        """Raise the error of the source."""
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        try:
            for chunk in self._chunks():
                if self._stopped:
                    break
                if not isinstance(chunk, Span):
                    self._write(chunk)
                elif self._move is not None:
                    self._move(chunk)
                else:
                    self._write(chunk.load())
                self._traffic.add(sent=len(chunk))
        except self._broken:
            pass
        except FleetError as error:
            self._failure = error
        with contextlib.suppress(*self._broken):
            self._finish()

    def _chunks(self) -> Iterable[Chunk]:
        while True:
            try:
                chunk = next(self._source)
            except StopIteration:
                return
            except Exception as error:  # noqa: BLE001 - raised again by check()
                self._failure = error
                return
            yield chunk


def start(target: Callable[..., object], *args: object) -> threading.Thread:
    """Start a daemon thread that calls `target(*args)`, and return it."""
    thread = threading.Thread(target=target, args=args, daemon=True)
    thread.start()
    return thread


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
