"""What is at the port of a service and is not the service: a real socket on loopback."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from fleet.engine.serving import service
from fleet.engine.serving.service import _judged
from fleet.model.deadline import Deadline
from fleet.model.errors import DeviceError
from fleet.ops.serving import ServiceSeen
from fleet.transport.base import PortStream

Answer = Callable[[socket.socket], None]


@contextmanager
def listening(answer: Answer) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(4096)
                answer(peer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def dial(port: int, deadline: Deadline) -> PortStream:
    return socket.create_connection(("127.0.0.1", port), deadline.remaining)


def foreign(peer: socket.socket) -> None:
    peer.sendall(b"HTTP/1.0 200 OK\r\n\r\n{}")


def breaks(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def silent(peer: socket.socket) -> None:
    peer.recv(1)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (foreign, "is in use by a program that fleet did not start"),
        (breaks, "stopped in the middle of its answer to /health"),
        (silent, "did not answer to /health in time"),
    ],
)
def test_why_a_service_does_not_answer_is_told(
    answer: Answer, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "HEALTH_SECONDS", 0.3)
    with listening(answer) as port:
        found, why = service.health_or_why(dial, port)
    assert found is None
    assert why is not None
    assert said in why.message
    outcome, text = _judged(ServiceSeen(keeper=1), None, why.message)
    assert outcome == "failed"
    assert said in text


def test_where_nothing_listens_there_is_nothing_to_tell() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    def refused(port: int, deadline: Deadline) -> PortStream:
        try:
            return dial(port, deadline)
        except OSError as error:
            raise DeviceError("nothing listens") from error

    assert service.health_or_why(refused, port) == (None, None)


def test_a_service_that_cannot_start_is_no_success() -> None:
    outcome, text = _judged(ServiceSeen(failed=True), None)
    assert (outcome, text) == ("failed", "the service cannot start: fleet serve logs")
    assert _judged(ServiceSeen(), None) == ("ok", "stopped")
