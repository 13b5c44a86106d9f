from __future__ import annotations

import socket

import pytest

from fleet.transport.ssh import prompt


def _pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname(), 5)
        far, _ = server.accept()
    return near, far


def test_the_connection_is_the_same_and_gathers_nothing() -> None:
    near, far = _pair()
    number, limit = near.fileno(), near.gettimeout()
    with far, prompt(near) as quick:
        assert (quick.fileno(), quick.gettimeout()) == (number, limit)
        assert near.fileno() == -1  # one owner: closed once
        assert quick.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        far.sendall(b"hello")
        assert quick.recv(5) == b"hello"
        quick.sendall(b"you")
        assert far.recv(3) == b"you"


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux has TCP_QUICKACK")
def test_what_comes_is_acknowledged_at_once_while_the_connection_is_young(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fleet.transport.ssh._FIRST", 2)
    said: list[tuple[int, ...]] = []
    near, far = _pair()
    with far, prompt(near) as quick:
        monkeypatch.setattr(
            type(quick), "setsockopt", lambda _self, *words: said.append(words), raising=False
        )
        for _ in range(3):
            far.sendall(b"x")
            assert quick.recv(1) == b"x"
    assert said == [(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)] * 2


def test_what_is_no_tcp_socket_stays_as_it_is() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert prompt(one) is one
    channel = object()
    assert prompt(channel) is channel
