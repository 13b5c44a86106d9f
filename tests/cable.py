"""A cable that can be cut: a TCP proxy on loopback with a budget of bytes."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self


class Cable:
    """Forwards 127.0.0.1:port to a target.

    `budgets`: for each connection in turn, how many bytes go towards the device before both
    ends are reset; None lets it live. After the list every connection lives.
    """

    def __init__(self, target: int, budgets: list[int | None]) -> None:
        self._target = target
        self._budgets = list(budgets)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.sent = 0
        self.cuts = 0
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def plug_into(self, target: int) -> None:
        """Lead to another device from now on; what is connected breaks."""
        self._target = target
        for one in self._open:
            _reset(one)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()
        for one in self._open:
            _reset(one)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target), 10)
                self._open += [near, far]
                budget = self._budgets.pop(0) if self._budgets else None
                threading.Thread(target=self._pump, args=(near, far, budget), daemon=True).start()
                threading.Thread(target=self._pump, args=(far, near, None), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, budget: int | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if budget is not None:
                    data = data[:budget]
                    budget -= len(data)
                sink.sendall(data)
                if budget is not None:
                    self.sent += len(data)
                    if budget <= 0:
                        self.cuts += 1
                        break
        _reset(source)
        _reset(sink)


def _reset(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        one.close()
