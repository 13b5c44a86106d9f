"""Session channels of one ssh connection; over far links one is open ahead of its command."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

import paramiko

FAR_SECONDS = 0.01  # opening a channel is one round trip; nearer ones are not worth a thread
ENDING_SECONDS = 5.0  # a server of one session counts that of the last command until it is cleared
AGAIN_SECONDS = 0.05


class Channels:
    """Opens channels for commands. A command over 50 ms needs one round trip less so."""

    def __init__(self, transport: paramiko.Transport) -> None:
        self.transport = transport
        self._lock = threading.Lock()
        self._early: Future[paramiko.Channel | None] | None = None
        self._far = False
        self._refused = False

    def take(self, seconds: float) -> paramiko.Channel:
        """An open channel of its own for each caller. Raises what `open_session` raises."""
        with self._lock:
            early, self._early = self._early, None
        channel = self._opened(early, seconds)
        if channel is None:
            began = time.monotonic()
            channel = self._patiently(seconds)
            self._far = time.monotonic() - began > FAR_SECONDS
        with self._lock:
            if self._far and not self._refused and self._early is None:
                self._early = Future()
                args = (self._early, seconds)
                threading.Thread(target=self._open, args=args, daemon=True).start()
        return channel

    def _patiently(self, seconds: float) -> paramiko.Channel:
        """What is refused may be so because the session before is still being cleared away."""
        end = time.monotonic() + min(seconds, ENDING_SECONDS)
        while True:
            try:
                return self.transport.open_session(timeout=seconds)
            except paramiko.ChannelException:
                if time.monotonic() >= end:
                    raise
                time.sleep(AGAIN_SECONDS)

    def _opened(
        self, early: Future[paramiko.Channel | None] | None, seconds: float
    ) -> paramiko.Channel | None:
        try:
            channel = early.result(seconds) if early is not None else None
        except TimeoutError as error:
            raise paramiko.SSHException("Timeout opening channel.") from error
        return None if channel is None or channel.closed else channel

    def _open(self, early: Future[paramiko.Channel | None], seconds: float) -> None:
        """Work of a thread. A server may allow few sessions, or one: then none is open ahead."""
        channel = None
        try:
            channel = self.transport.open_session(timeout=seconds)
        except paramiko.ChannelException:
            self._refused = True
        except (paramiko.SSHException, EOFError, OSError):
            pass
        finally:
            early.set_result(channel)
