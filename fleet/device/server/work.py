"""The session, its thread, and a bounded queue of jobs.

The event loop of the server submits and cancels jobs; the thread opens the backend and runs one job
after another. The results of a job go to its queue in the loop, in order.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, Optional, Tuple

from fleet.device.server.chat import Cutter


class BackendError(Exception):
    """An error of a backend. `status` is that of the answer, `code` is stable."""

    def __init__(self, code: str, message: str, status: int = 500) -> None:
        super().__init__(message)
        self.code, self.message, self.status = code, message, status


def no_logits(_backend: Any, _prompt: object) -> "Dict[str, Any]":
    """Raise BackendError for a backend that gives no logits."""
    text = "logits: this backend does not give them; leave it out"
    raise BackendError("unsupported", text, 400)


class Full(Exception):  # noqa: N818
    """The queue is full."""


class Job:
    """A request in the queue.

    `events` yields ("token", (text, token id or None))*, then ("done", result) or ("error", error).
    `arrived` is its arrival, `began` the time when it left the queue (seconds of the monotonic
    clock). `cutter` holds back text and may end the job at a stop sequence.
    """

    def __init__(
        self, call: "Callable[[Any, Job], Dict[str, Any]]", cutter: "Optional[Cutter]" = None
    ) -> None:
        self.call, self.cutter = call, cutter or Cutter()
        self.loop = asyncio.get_running_loop()
        self.events: "asyncio.Queue[Tuple[str, Any]]" = asyncio.Queue()
        self.arrived, self.began = time.monotonic(), 0.0
        self.cancelled = 0.0  # the time of the cancellation, 0.0 for none

    def tell(self, kind: str, value: object) -> None:
        """Send an event from the thread of the backend."""
        self.loop.call_soon_threadsafe(self.events.put_nowait, (kind, value))

    def take(self, text: str, token: "Optional[int]" = None) -> None:
        """Send a piece of text from the backend, unless it is held back or after a stop
        sequence.
        """
        past = self.cutter.stopped
        text = self.cutter.take(text)
        if past:
            return
        if self.cutter.stopped:
            self.cancelled = self.cancelled or time.monotonic()
        if text or token is not None:
            self.tell("token", (text, token))

    def finish(self, result: "Dict[str, Any]") -> "Dict[str, Any]":
        """Send the rest of the text; return the result with `finish` and the tool `calls`."""
        rest = self.cutter.end()
        if rest:
            self.tell("token", (rest, None))
        finish = "stop" if self.cutter.stopped else result.get("finish")
        return {**result, "finish": finish, "calls": self.cutter.calls}


class Worker:
    """The thread that owns the backend. All methods are called from the event loop."""

    def __init__(self, backend: Any, room: int, failed: "Callable[[str], None]") -> None:
        self._backend, self._room, self._failed = backend, room, failed
        self._waiting: "Deque[Job]" = deque()
        self._turn = threading.Condition()
        self._closing = False
        self.current: "Optional[Job]" = None
        self.ready = self.broken = False
        self.served: "Dict[str, int]" = {"done": 0, "cancelled": 0, "failed": 0}
        self._thread = threading.Thread(target=self._work, name="backend", daemon=True)

    def start(self) -> None:
        """Open the backend, then run jobs."""
        self._thread.start()

    @property
    def about(self) -> "Dict[str, Any]":
        """The backend's description of its open model, for /health."""
        return dict(getattr(self._backend, "about", {}))

    @property
    def length(self) -> int:
        """The number of waiting jobs, without the running one."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """True if no job runs or waits."""
        return self.current is None and not self._waiting

    def submit(self, job: Job) -> None:
        """Append a job to the queue. Raises Full."""
        with self._turn:
            if len(self._waiting) >= self._room:
                raise Full
            self._waiting.append(job)
            self._turn.notify()

    def cancel(self, job: Job) -> None:
        """Cancel a job for which nobody waits any more."""
        with self._turn:
            job.cancelled = job.cancelled or time.monotonic()
            if job in self._waiting:
                self._waiting.remove(job)
                self.served["cancelled"] += 1
                return
            running = self.current is job
        if running:
            self._backend.abort()

    def dismiss(self) -> "Tuple[Job, ...]":
        """Remove and return all waiting jobs."""
        with self._turn:
            gone = tuple(self._waiting)
            self._waiting.clear()
        return gone

    def close(self, seconds: float) -> None:
        """Free the session; give up after `seconds`."""
        with self._turn:
            self._closing = True
            self._turn.notify()
        self._thread.join(seconds)

    def _work(self) -> None:
        try:
            self._backend.open()
        except Exception as error:  # noqa: BLE001 - any exception of a backend's library
            self._failed("%s: %s" % (type(error).__name__, error))
            return
        self.ready = True
        while True:
            with self._turn:
                while not self._waiting and not self._closing:
                    self._turn.wait()
                if self._closing:
                    break
                job = self.current = self._waiting.popleft()
            self._run(job)
        self._backend.close()

    def _run(self, job: Job) -> None:
        job.began = time.monotonic()
        outcome, kind, value = "failed", "error", None  # type: Tuple[str, str, Any]
        try:
            value = job.finish(job.call(self._backend, job))
            ended = job.cancelled and not job.cutter.stopped
            outcome, kind = "cancelled" if ended else "done", "done"
        except BackendError as error:
            value = error
            self.broken = self.broken or error.code == "broken"
            outcome = "failed" if error.status >= 500 else "done"
        except Exception as error:  # noqa: BLE001 - one job must not end the service
            sys.stderr.write("a job failed: %s: %s\n" % (type(error).__name__, error))
            value = BackendError("internal", "the request failed: fleet serve logs")
        with self._turn:
            self.current = None
            self.served[outcome] += 1
        job.tell(kind, value)
