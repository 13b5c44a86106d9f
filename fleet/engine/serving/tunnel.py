"""A tunnel from a port of this machine's loopback to a port of a device's loopback.

Each connection is a channel of the one connection to the device. If one side ends, so does the
other: a stream that breaks on the device breaks here.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self

from fleet.engine.session import Session
from fleet.model.deadline import Deadline
from fleet.model.errors import ConnectionLostError, FleetError, InputError, TransportError, reason
from fleet.transport.base import PortStream

DIAL_SECONDS = 10.0
BACKLOG = 128
_CHUNK = 1 << 16


class Tunnel:
    """A tunnel that is open inside the context. `say` is called with errors of single
    connections.
    """

    def __init__(
        self, session: Session, port: int, *, local: int = 0, say: Callable[[str], None]
    ) -> None:
        """Open the local port; `local` 0 means any free port. Raises InputError for a port
        in use.
        """
        self._session, self._port, self._say = session, port, say
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._over = threading.Event()
        try:
            self._listener = socket.create_server(("127.0.0.1", local), backlog=BACKLOG)
        except OSError as error:
            raise InputError(
                f"cannot open port {local} of this workstation: {reason(error)}",
                hint="let fleet choose a free port: --local-port 0",
            ) from error
        self.local: int = self._listener.getsockname()[1]

    @property
    def url(self) -> str:
        """The address `http://127.0.0.1:PORT`."""
        return f"http://127.0.0.1:{self.local}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._listener.close()
        with self._lock:
            for connection in self._open:
                _hang_up(connection)

    def wait(self) -> None:
        """Wait until the end, which is Ctrl-C."""
        self._over.wait()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._open.add(near)
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        far: PortStream | None = None
        try:
            far = self._dial()
            other = threading.Thread(target=_pump, args=(near, far), daemon=True)
            other.start()
            _pump(far, near)
            _hang_up(near)
            other.join()
        except FleetError as error:
            self._say(error.message)
        finally:
            if far is not None:
                with contextlib.suppress(OSError, EOFError):  # errors of a connection that is gone
                    far.close()
            _hang_up(near)
            with self._lock:
                self._open.discard(near)
            near.close()

    def _dial(self) -> PortStream:
        """Return a channel. A lost connection is opened again once."""
        used = self._session.transport
        try:
            return used.dial(self._port, Deadline(DIAL_SECONDS))
        except (ConnectionLostError, TransportError):
            with self._lock:
                if self._session.transport is used:
                    self._say("the connection to the device broke; fleet is connecting again")
                    self._session.reopen()
            return self._session.transport.dial(self._port, Deadline(DIAL_SECONDS))


def _pump(source: PortStream, sink: PortStream) -> None:
    """Forward all bytes from one side to the other, and the end of the stream."""
    with contextlib.suppress(OSError, EOFError):
        while chunk := source.recv(_CHUNK):
            sink.sendall(chunk)
    with contextlib.suppress(OSError, EOFError):
        sink.shutdown(socket.SHUT_WR)


def _hang_up(near: socket.socket) -> None:
    with contextlib.suppress(OSError):
        near.shutdown(socket.SHUT_RDWR)
