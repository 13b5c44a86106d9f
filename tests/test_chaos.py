"""The misbehaving link itself: what it promises is exact, so that other tests may count on it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.chaos import CHUNK, Chaos, Fault, Pace

SECONDS = 20.0


@dataclass
class Sink:
    """A device that counts: all bytes of each connection, and how it ended."""

    port: int = 0
    got: list[bytearray] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    ended: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def serve(self, listener: socket.socket, greeting: bytes) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                peer.settimeout(SECONDS)
                mine = bytearray()
                self.got.append(mine)
                threading.Thread(target=self._one, args=(peer, mine, greeting), daemon=True).start()

    def _one(self, peer: socket.socket, mine: bytearray, greeting: bytes) -> None:
        end = "fin"
        with peer:
            try:
                if greeting:
                    peer.sendall(greeting)
                while data := peer.recv(1 << 16):
                    mine += data
            except OSError as error:
                end = type(error).__name__
        self.ends.append(end)
        self.ended.release()

    def wait(self) -> None:
        assert self.ended.acquire(timeout=SECONDS), "the device still waits"


@contextlib.contextmanager
def device(greeting: bytes = b"") -> Iterator[Sink]:
    sink = Sink()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sink.port = listener.getsockname()[1]
        threading.Thread(target=sink.serve, args=(listener, greeting), daemon=True).start()
        yield sink
        listener.shutdown(socket.SHUT_RDWR)


def connect(chaos: Chaos) -> socket.socket:
    return socket.create_connection(("127.0.0.1", chaos.port), SECONDS)


def send(one: socket.socket, data: bytes) -> str:
    """Send until the other side ends it; how it ended."""
    try:
        one.sendall(data)
        with contextlib.suppress(OSError):  # it is gone already: recv says how
            one.shutdown(socket.SHUT_WR)
        while one.recv(1 << 16):
            pass
    except OSError as error:
        return type(error).__name__
    return "fin"


def pattern(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


@pytest.mark.parametrize("how", ["rst", "fin"])
@pytest.mark.parametrize("at", [1, 2, 1000, CHUNK - 1, CHUNK, CHUNK + 1, 3_000_001])
def test_a_cut_lets_exactly_its_bytes_through(how: str, at: int) -> None:
    data = pattern(4_000_000)
    with device() as sink, Chaos(sink.port, [Fault(cut=at, how=how)]) as chaos:  # type: ignore[arg-type]
        with connect(chaos) as one:
            end = send(one, data)
        sink.wait()
        assert bytes(sink.got[0]) == data[:at]
        assert (chaos.sent, chaos.cuts, chaos.connections) == (at, 1, 1)
        assert sink.ends == [{"rst": "ConnectionResetError", "fin": "fin"}[how]]
        if how == "rst":
            assert end in {"ConnectionResetError", "BrokenPipeError"}, end


def test_a_cut_of_the_way_back_is_exact_too() -> None:
    data = pattern(500_000)
    with device(data) as sink, Chaos(sink.port, [Fault(cut_back=123_457, how="fin")]) as chaos:
        got = bytearray()
        with connect(chaos) as one:
            while some := one.recv(1 << 16):
                got += some
        sink.wait()
        assert bytes(got) == data[:123_457]
        assert (chaos.received, chaos.sent, chaos.cuts) == (123_457, 0, 1)


def test_the_script_is_one_fault_a_connection_and_then_all_live() -> None:
    with device() as sink, Chaos(sink.port, [10, None, Fault(refuse=True), 20]) as chaos:
        for _ in range(6):
            # A reset can come while connect() still waits.
            with contextlib.suppress(ConnectionResetError), connect(chaos) as one:
                send(one, b"x" * 100)
        assert [tally.sent for tally in chaos.tallies] == [10, 100, 0, 20, 100, 100]
        assert [tally.cut for tally in chaos.tallies] == [True, False, True, True, False, False]


def test_a_half_closed_connection_still_answers() -> None:
    data = pattern(300_000)
    with device(data) as sink, Chaos(sink.port) as chaos, connect(chaos) as one:
        one.shutdown(socket.SHUT_WR)
        sink.wait()
        got = bytearray()
        while some := one.recv(1 << 16):
            got += some
        assert bytes(got) == data


def test_a_black_hole_takes_everything_and_says_nothing() -> None:
    with device() as sink, Chaos(sink.port, [Fault(cut=1000, how="hole")]) as chaos:
        with connect(chaos) as one:
            one.sendall(pattern(200_000))  # taken: no error, and no answer
            one.settimeout(0.2)
            with pytest.raises(TimeoutError):
                one.recv(1)
            assert bytes(sink.got[0]) == pattern(200_000)[:1000]
            assert sink.ends == []
        with connect(chaos) as two:
            send(two, b"y" * 50)
        assert bytes(sink.got[1]) == b"y" * 50, "only the connection of the script was lost"


def test_swallow_takes_what_lives_and_what_comes_until_healed() -> None:
    with device() as sink, Chaos(sink.port) as chaos:
        one = connect(chaos)
        one.sendall(b"a" * 10)
        while not sink.got or len(sink.got[0]) < 10:
            threading.Event().wait(0.002)
        chaos.swallow()
        one.sendall(b"b" * 10)
        two = connect(chaos)
        two.sendall(b"c" * 10)
        two.settimeout(0.2)
        with pytest.raises(TimeoutError):
            two.recv(1)
        chaos.heal()
        with connect(chaos) as three:
            assert send(three, b"d" * 10) == "fin"
        one.close()
        two.close()
        assert sorted(bytes(got) for got in sink.got) == [b"", b"a" * 10, b"d" * 10]


def test_refused_as_by_a_machine_without_a_server_then_healed() -> None:
    with device() as sink, Chaos(sink.port) as chaos:
        chaos.refuse()
        with pytest.raises(ConnectionRefusedError):
            connect(chaos)
        chaos.heal()
        with connect(chaos) as one:
            assert send(one, b"again") == "fin"
        assert [bytes(got) for got in sink.got] == [b"again"]


def test_another_device_at_the_other_end() -> None:
    with device() as first, device() as second, Chaos(first.port) as chaos:
        one = connect(chaos)
        one.sendall(b"1")
        while not first.got or not first.got[0]:
            threading.Event().wait(0.002)
        chaos.plug_into(second.port)
        with pytest.raises(ConnectionResetError):
            one.recv(1)
        one.close()
        with connect(chaos) as two:
            assert send(two, b"2") == "fin"
        assert (bytes(first.got[0]), bytes(second.got[0])) == (b"1", b"2")


def test_a_device_that_does_not_read_holds_nobody_up() -> None:
    """A reset reaches a sender that waits for a full buffer."""
    with (
        socket.create_server(("127.0.0.1", 0)) as deaf,
        Chaos(deaf.getsockname()[1]) as chaos,
        connect(chaos) as one,
    ):
        one.settimeout(0.3)
        with pytest.raises(TimeoutError):
            one.sendall(bytes(64 << 20))
        chaos.cut_all()
        one.settimeout(SECONDS)
        with pytest.raises(ConnectionResetError):
            one.recv(1)


def test_rate_and_latency_are_arithmetic() -> None:
    line = Pace(1000.0, 0.5)
    assert line.due(10.0, 100) == pytest.approx(10.6)
    assert line.due(10.0, 100) == pytest.approx(10.7), "behind the first"
    assert line.due(20.0, 1) == pytest.approx(20.501), "an idle line saves nothing up"
    far = Pace(None, 0.05)
    assert far.due(1.0, 1 << 20) == far.due(1.0, 1) == pytest.approx(1.05)
    assert Pace(None, 0.0).idle
    assert not Pace(1.0, 0.0).idle
    total, slow = 0.0, Pace(1e6, 0.0)
    for _ in range(1000):
        total = slow.due(0.0, slow.piece)
    assert total == pytest.approx(1000 * slow.piece / 1e6)


def test_a_slow_line_is_never_faster_than_its_rate() -> None:
    """The time that went by is at least that of the bytes; how much more the machine decides."""
    data = pattern(60_000)
    fault = Fault(rate=200_000.0, rate_back=400_000.0, latency=0.05)
    with device(data) as sink, Chaos(sink.port, [fault]) as chaos:
        began = time.monotonic()
        with connect(chaos) as one:
            assert send(one, data) == "fin"
        took = time.monotonic() - began
        sink.wait()
        assert bytes(sink.got[0]) == data
        assert (chaos.sent, chaos.received) == (60_000, 60_000)
        assert took >= 60_000 / 200_000 + 2 * 0.05, "faster than the line"


def test_latency_does_not_limit_what_is_on_the_way() -> None:
    """16 MiB through 30 ms: one chunk a round trip would be 256 round trips."""
    data = pattern(16 << 20)
    with device() as sink, Chaos(sink.port, then=Fault(latency=0.03)) as chaos:
        with connect(chaos) as one:
            assert send(one, data) == "fin"
        sink.wait()
        assert bytes(sink.got[0]) == data
