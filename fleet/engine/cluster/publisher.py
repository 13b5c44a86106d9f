"""Events of a worker process on their way home: in batches, progress thinned."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from fleet.model.events import DeviceDone, Event, Output, Progress, RunDone, Warned
from fleet.model.plain import to_plain

FLUSH_SECONDS = 0.25
PROGRESS_SECONDS = 1.0  # of each board; a table is read by eyes
OUTPUT_CHARACTERS = 16_000  # a batch; what runners print is in the records anyway
BATCH_EVENTS = 500


class Publisher:
    """A Listener that sends batches with `send`, at most one each FLUSH_SECONDS.

    Bounded: of Progress the newest of each board and step counts, Output beyond a limit is
    cut with a mark. DeviceDone and RunDone do not travel: the workstation makes them of the
    result, when the records are there.
    """

    def __init__(self, send: Callable[[list[dict[str, Any]]], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._progress: dict[tuple[str, str], Progress] = {}
        self._told: dict[tuple[str, str], float] = {}
        self._characters = 0
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True, name="fleet-events")
        self._thread.start()

    def __call__(self, event: Event) -> None:
        """Take an event; it leaves within FLUSH_SECONDS."""
        if isinstance(event, DeviceDone | RunDone):
            return
        with self._lock:
            if isinstance(event, Progress):
                self._progress[event.host, event.step] = event
            elif not isinstance(event, Output):
                self._events.append(event)
            elif self._characters <= OUTPUT_CHARACTERS:
                self._characters += len(event.text)
                cut = self._characters > OUTPUT_CHARACTERS
                self._events.append(event)
                if cut:
                    self._events.append(
                        Warned(
                            event.host,
                            "fleet does not show the rest of the output, because it is too long",
                        )
                    )
        self._wake.set()

    def flush(self, *, last_of: str = "") -> None:
        """Send what there is; of `last_of` (a board) also the newest progress."""
        now = time.monotonic()
        with self._lock:
            events, self._events, self._characters = self._events, [], 0
            for key in list(self._progress):
                if key[0] == last_of or now - self._told.get(key, 0.0) >= PROGRESS_SECONDS:
                    events.append(self._progress.pop(key))
                    self._told[key] = now
            if last_of:
                self._told = {k: v for k, v in self._told.items() if k[0] != last_of}
            for start in range(0, len(events), BATCH_EVENTS):
                self._send([to_plain(event) for event in events[start : start + BATCH_EVENTS]])

    def close(self) -> None:
        """Send the rest and end."""
        self._ended.set()
        self._wake.set()
        self.flush()

    def _keep(self) -> None:
        while not self._ended.wait(FLUSH_SECONDS):
            self._wake.wait()
            self._wake.clear()
            self.flush()
            if self._progress:
                self._wake.set()
