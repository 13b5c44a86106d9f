"""A connection to a port of the device's own loopback, over each transport."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.model.command import script
from fleet.model.deadline import Deadline
from fleet.model.errors import DeviceError, UnreachableError
from fleet.transport import transport_for
from fleet.transport.base import Transport

from .sshd import free_port, running
from .test_conformance import a_host


@contextlib.contextmanager
def listener() -> Iterator[tuple[int, list[bytes]]]:
    """Says back all that one client said, in capitals, when that one has ended."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            near, _ = server.accept()
            with near:
                while chunk := near.recv(65536):
                    heard.append(chunk)
                near.sendall(b"".join(heard).upper())

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], heard
        thread.join(10)


@contextlib.contextmanager
def opened(kind: str, folder: Path) -> Iterator[Transport]:
    with a_host(kind, folder) as host:
        link = transport_for(host)
        if kind != "local":  # which needs no connection
            with pytest.raises(UnreachableError):
                link.dial(1, Deadline(5))
        link.open(Deadline(10))
        yield link
        link.close()


@pytest.mark.parametrize("kind", ["local", "ssh"])
def test_bytes_go_both_ways_and_so_does_the_end(kind: str, tmp_path: Path) -> None:
    data = b"abc" * 300_000
    with opened(kind, tmp_path) as link, listener() as (port, _):
        stream = link.dial(port, Deadline(10))
        stream.sendall(data)
        stream.shutdown(socket.SHUT_WR)
        found = b""
        while chunk := stream.recv(65536):
            found += chunk
        stream.close()
    assert found == data.upper()


def test_a_phone_with_a_real_adbd(tmp_path: Path) -> None:
    with opened("phone", tmp_path) as link:
        port = free_port()
        waits = script("toybox nc -l -p $1 toybox cat", str(port))
        server = threading.Thread(target=lambda: link.run(waits, Deadline(20)))
        server.start()
        end = time.monotonic() + 10
        while True:
            try:
                stream = link.dial(port, Deadline(10))
                break
            except DeviceError:
                assert time.monotonic() < end
                time.sleep(0.05)
        stream.sendall(b"over the cable")
        found = b""
        while len(found) < 14 and (chunk := stream.recv(100)):
            found += chunk
        stream.close()
        assert found == b"over the cable"
        server.join(20)


@pytest.mark.parametrize("kind", ["local", "ssh", "phone"])
def test_a_port_where_nothing_listens_is_an_error_of_the_device(kind: str, tmp_path: Path) -> None:
    with (
        opened(kind, tmp_path) as link,
        pytest.raises(DeviceError, match=r"no program (on the device )?answers"),
    ):
        link.dial(free_port(), Deadline(10))


def test_a_server_that_forbids_forwarding_is_told_so(tmp_path: Path) -> None:
    with running(tmp_path, "AllowTcpForwarding=no") as server:
        link = transport_for(server.host())
        link.open(Deadline(10))
        with pytest.raises(DeviceError, match="forbids forwarding") as caught:
            link.dial(free_port(), Deadline(10))
        link.close()
    assert "AllowTcpForwarding" in caught.value.hint
