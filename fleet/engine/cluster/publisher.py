"""The events of a worker process on their way to the workstation: in batches, with less
progress.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from fleet.model.events import DeviceDone, Event, Output, Progress, RunDone, Warned
from fleet.model.plain import to_plain

FLUSH_SECONDS = 0.25
PROGRESS_SECONDS = 1.0  # between two progress events of a board; people cannot read faster
OUTPUT_CHARACTERS = 16_000  # limit of a batch; the records have the output of runners anyway
BATCH_EVENTS = 500


class Publisher:
    """A Listener that sends batches with `send`, at most one each FLUSH_SECONDS.

    The batches are bounded. Only the newest Progress of each board and step is sent, and Output
    beyond a limit is cut with a warning. DeviceDone and RunDone are not sent: the workstation makes
    them from the result when the records have arrived.
    """

    def __init__(self, send: Callable[[list[dict[str, Any]]], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._progress: dict[tuple[str, str], Progress] = {}
        self._last_sent: dict[tuple[str, str], float] = {}
        self._characters = 0
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True, name="fleet-events")
        self._thread.start()

    def __call__(self, event: Event) -> None:
        """Accept an event and send it within FLUSH_SECONDS."""
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
        """Send all pending events, for the board `last_of` also the newest progress."""
        now = time.monotonic()
        with self._lock:
            events, self._events, self._characters = self._events, [], 0
            for key in list(self._progress):
                if key[0] == last_of or now - self._last_sent.get(key, 0.0) >= PROGRESS_SECONDS:
                    events.append(self._progress.pop(key))
                    self._last_sent[key] = now
            if last_of:
                self._last_sent = {k: v for k, v in self._last_sent.items() if k[0] != last_of}
            for start in range(0, len(events), BATCH_EVENTS):
                self._send([to_plain(event) for event in events[start : start + BATCH_EVENTS]])

    def close(self) -> None:
        """Send the rest and stop."""
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
