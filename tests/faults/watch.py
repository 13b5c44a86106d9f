"""A clock for tests of deadlines: it goes only while those who work with it look at it.

The constants that ship stay as they are; what takes a minute passes in a second or two. Under
load nothing changes but how long the test takes: no look, no time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import paramiko.transport
import pytest

STEP = 0.25  # seconds that a look is worth
POLL_SECONDS = 0.005


class Watch:
    """Goes on by STEP when each of the threads has looked since it last did, while `runs()`.

    `sleep` passes time at once. Before `start` it stands.
    """

    def __init__(self) -> None:
        self.now = 1e6
        self._runs: Callable[[], bool] = lambda: False
        self._threads: Callable[[], set[threading.Thread]] = set
        self._looked: set[threading.Thread] = set()
        self._lock = threading.Lock()

    def start(self, runs: Callable[[], bool], threads: Callable[[], set[threading.Thread]]) -> None:
        """It goes on while `runs()`; `threads()` are those who have to look."""
        self._threads, self._runs = threads, runs

    def __call__(self) -> float:
        """The time; in the place of time.monotonic."""
        with self._lock:
            if self._runs():
                self._looked.add(threading.current_thread())
                if self._threads() <= self._looked:
                    self._looked.clear()
                    self.now += STEP
            return self.now

    def sleep(self, seconds: float) -> None:
        """In the place of time.sleep."""
        with self._lock:
            self.now += seconds

    def plug_in(self, patch: pytest.MonkeyPatch) -> None:
        """Put it in the place of the clocks of deadlines, leases and uploads over ssh."""
        mine = SimpleNamespace(
            monotonic=self, sleep=self.sleep, time=self, strftime=time.strftime, gmtime=time.gmtime
        )
        watch = self

        class Event(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                end = watch() + (timeout or 0.0)
                while not self.is_set() and (timeout is None or watch() < end):
                    time.sleep(POLL_SECONDS)
                return self.is_set()

        patch.setattr("fleet.model.deadline.time", mine)
        patch.setattr("fleet.engine.transfer.upload.time", mine)
        patch.setattr("fleet.engine.lease.lease.awake_clock", self)
        patch.setattr("fleet.engine.session.awake_clock", self)
        patch.setattr(
            "fleet.engine.lease.lease.threading",
            SimpleNamespace(Event=Event, Lock=threading.Lock, Thread=threading.Thread),
        )
        patch.setattr("fleet.transport.control.SLICE_SECONDS", POLL_SECONDS)
        patch.setattr(paramiko.transport, "time", mine)
