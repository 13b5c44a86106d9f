"""The parts of the transfer engine by themselves: limits, shared reading, samples, the choice."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fleet.content.signatures import BLAKE2, CRC, Signatures, hash_and_sign
from fleet.engine.session import Session
from fleet.engine.transfer import carriers as ways
from fleet.engine.transfer.carriers import PIECE_BYTES, Carriers, Choice
from fleet.engine.transfer.context import (
    CompressionSample,
    Hubs,
    Sampler,
    SharedSource,
    Throttle,
    TransferContext,
    TransferOptions,
    hub_of,
    parse_rate,
)
from fleet.engine.transfer.deltas import with_asked
from fleet.model.command import Command, Result
from fleet.model.deadline import Deadline
from fleet.model.errors import ConnectionLostError, InputError, UnreachableError
from fleet.model.facts import Facts, Tools
from fleet.model.files import Chunk, FileRef, file_ref
from fleet.model.inventory import Host
from fleet.model.plan import Blob
from fleet.ops.frames import CHUNK
from fleet.transport.base import Carrier, Output


@pytest.mark.parametrize(
    ("text", "rate"),
    [("50MB/s", 50e6), ("100Mbit/s", 12.5e6), ("1Gbit", 125e6), ("1.5 MBps", 1.5e6), ("9B", 9.0)],
)
def test_rates(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "0MB/s", "-1MB/s", "5 MiB", "10mb/s"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(InputError, match="is not a data rate"):
        parse_rate(text)


def test_the_throttle_is_shared() -> None:
    now = [0.0]
    waits: list[float] = []
    throttle = Throttle(1000.0, clock=lambda: now[0], sleep=waits.append)
    for _ in range(4):
        throttle.take(500)
    assert [round(one, 3) for one in waits] == [0.5, 1.0, 1.5, 2.0]
    now[0] = 100.0
    waits.clear()
    throttle.take(100)
    assert waits == []  # after a pause a short burst is free
    assert list(throttle.feed([b"ab", b"c"])) == [b"ab", b"c"]


@pytest.mark.parametrize(
    ("host", "hub"),
    [
        (Host("a"), ""),
        (Host("a", labels={"hub": "rack1"}), "rack1"),
        (Host("a", transport="adb", serial="usb:1-4.2"), "usb:1-4"),
        (Host("a", transport="adb", serial="usb:1-4.2.3"), "usb:1-4.2"),
        (Host("a", transport="adb", serial="usb:3-1"), "usb:3"),
        (Host("a", transport="adb", serial="R58M"), ""),
    ],
)
def test_hubs(host: Host, hub: str) -> None:
    assert hub_of(host) == hub


def test_no_more_than_allowed_behind_a_hub() -> None:
    hubs = Hubs(2)
    inside, most, lock = [0], [0], threading.Lock()
    gate = threading.Barrier(2)

    def work(host: Host) -> None:
        with hubs.lane(host):
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            gate.wait(10)  # two are inside at the same time
            with lock:
                inside[0] -= 1

    hosts = [Host(f"h{n}", labels={"hub": "x"}) for n in range(8)]
    threads = [threading.Thread(target=work, args=(host,)) for host in hosts]
    for one in threads:
        one.start()
    for one in threads:
        one.join(20)
    assert most == [2]


def a_file(root: Path, data: bytes, name: str = "f") -> FileRef:
    (root / name).write_bytes(data)
    return file_ref(root / name, name)


def test_one_reading_serves_all(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(20 * CHUNK + 77)
    item = a_file(tmp_path, data)
    source = SharedSource()
    got: list[bytes] = []

    def work() -> None:
        got.append(b"".join(source.read(item, at, at + CHUNK) for at in range(0, item.size, CHUNK)))

    threads = [threading.Thread(target=work) for _ in range(12)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(20)
    assert got == [data] * 12
    assert source.reads == len(data)


@pytest.mark.parametrize("start", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 5 * CHUNK + 10])
@pytest.mark.parametrize("end", [0, 1, CHUNK, 2 * CHUNK + 5, 9 * CHUNK])
def test_any_part_of_a_file(tmp_path: Path, start: int, end: int) -> None:
    end += start
    data = random.Random(2).randbytes(5 * CHUNK + 11)
    item = a_file(tmp_path, data)
    assert SharedSource().read(item, start, end) == data[start:end]


def test_memory_is_bounded(tmp_path: Path) -> None:
    item = a_file(tmp_path, bytes(40 * CHUNK))
    source = SharedSource(kept=4 * CHUNK)
    for at in range(0, item.size, CHUNK):
        source.read(item, at, at + CHUNK)
        kept = [one for one in source._chunks.values() if one.done()]
        assert sum(len(one.result()) for one in kept) <= 4 * CHUNK


def test_a_file_that_became_shorter_is_noticed_by_all(tmp_path: Path) -> None:
    item = a_file(tmp_path, bytes(3 * CHUNK))
    (tmp_path / "f").write_bytes(bytes(CHUNK + 5))
    source = SharedSource()
    for _ in range(2):
        assert len(source.read(item, 0, item.size)) == CHUNK + 5


def test_an_unreadable_file_is_an_error_for_each(tmp_path: Path) -> None:
    item = a_file(tmp_path, bytes(CHUNK))
    (tmp_path / "f").unlink()
    source = SharedSource()
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            source.read(item, 0, item.size)


def test_made_once(tmp_path: Path) -> None:
    item, calls = a_file(tmp_path, bytes(CHUNK)), []

    def make() -> bytes:
        calls.append(1)
        return b"made"

    source = SharedSource()
    assert [source.made(item, 0, 5, make) for _ in range(3)] == [b"made"] * 3
    assert len(calls) == 1


def test_samples_tell_weights_from_libraries(tmp_path: Path) -> None:
    weights = a_file(tmp_path, random.Random(3).randbytes(2 << 20), "weights")
    library = a_file(tmp_path, b"some text of a library " * 100_000, "library")
    tiny = a_file(tmp_path, b"tiny" * 100, "tiny")
    sampler = Sampler()
    assert sampler.sample(weights).share > 0.99
    assert sampler.sample(library).share < 0.2
    assert sampler.sample(tiny).share == 1.0
    assert sampler.pays(library, 0.0)
    assert not sampler.pays(weights, 0.0)
    assert not sampler.pays(library, None)


@pytest.mark.parametrize(
    ("rate", "pays"),
    [(1e6, True), (10e6, True), (29e6, True), (31e6, False), (200e6, False)],
)
def test_compressing_must_save_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rate: float, pays: bool
) -> None:
    """At 100 MB/s of zlib and a half left, 30 MB/s is where 0.8 of the time is reached."""
    sampler = Sampler()
    monkeypatch.setattr(sampler, "sample", lambda _: CompressionSample(0.5, 1e-8))
    assert sampler.pays(a_file(tmp_path, b""), rate) is pays


@dataclass
class Moves:
    """A carrier that nobody has run anything on."""

    rate: float
    name: str
    closed: bool = False

    def run(
        self,
        command: Command,
        deadline: Deadline,
        *,
        stdin: Iterable[Chunk] = (),
        on_stdout: Output | None = None,
        on_stderr: Output | None = None,
    ) -> Result:
        raise AssertionError(f"{command} on {self.name}")

    def trial(self) -> Carrier:
        return self

    def close(self) -> None:
        self.closed = True


@dataclass
class Way(Moves):
    """The second carrier."""


@dataclass
class Link(Moves):
    """A transport with a second carrier."""

    name: str = "paramiko"
    other: Way | None = None
    second: str = "ssh"
    never: bool = False
    go: threading.Event = field(default_factory=threading.Event)

    def carrier(self, _: Deadline) -> Way:
        self.go.wait(10)
        if self.other is None:
            raise UnreachableError("Permission denied")
        return self.other


def choice_of(link: Link, wanted: str, left: int) -> tuple[Choice, list[tuple[str, int, int]]]:
    sent: list[tuple[str, int, int]] = []

    def attempt(blob: Blob, count: int, carrier: Carrier) -> float:
        assert isinstance(carrier, Moves)
        sent.append((carrier.name, blob.offset, count))
        if not link.never:
            link.go.set()
        time.sleep(0.05)  # the opening thread has its turn
        return carrier.rate

    session = Session(Host("h"), lambda _: None)
    session.transport = link  # type: ignore[assignment]
    if wanted == "ssh":
        link.go.set()
    blob = Blob(FileRef(Path("x"), "x", left, "0" * 64))
    carriers = Carriers(session, wanted)
    try:
        return carriers.choose([blob], attempt), sent
    finally:
        carriers.close()


GIB = 1 << 30


def test_a_client_that_is_there_carries_all() -> None:
    link = Link(200e6, other=Way(180e6, "ssh"))
    link.go.set()
    choice, sent = choice_of(link, "auto", GIB)
    assert choice.carrier is link.other
    assert (choice.blobs[0].offset, sent) == (0, [])
    assert link.other is not None
    assert link.other.closed  # at the end of the upload


def test_the_open_connection_sends_until_the_client_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ways, "WAIT_SECONDS", 0.0)
    link = Link(200e6, other=Way(180e6, "ssh"))
    choice, sent = choice_of(link, "auto", GIB)
    assert choice.carrier is link.other
    assert {name for name, _, _ in sent} == {"paramiko"}
    assert [at for _, at, _ in sent] == [n * PIECE_BYTES for n in range(len(sent))]
    assert choice.blobs[0].offset == len(sent) * PIECE_BYTES


def test_a_client_that_comes_too_late_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "WAIT_SECONDS", 0.0)
    link = Link(200e6, other=Way(180e6, "ssh"), never=True)
    choice, sent = choice_of(link, "auto", 5 * PIECE_BYTES)
    link.go.set()
    assert (choice.carrier, choice.why) == (link, "the program ssh connected too late")
    assert (choice.rate, len(sent)) == (200e6, 3)


def test_a_client_that_cannot_connect_costs_nothing() -> None:
    link = Link(200e6, other=None)
    choice, _ = choice_of(link, "auto", GIB)
    assert choice.carrier is link
    assert choice.why == "Permission denied"


def test_little_goes_over_the_open_connection() -> None:
    choice, sent = choice_of(Link(200e6, other=Way(1e9, "ssh")), "auto", 5 << 20)
    assert (choice.why, sent) == ("little to send", [])


def test_what_was_asked_for_is_taken_or_refused() -> None:
    link = Link(200e6, other=Way(1.0, "ssh"))
    assert choice_of(link, "ssh", GIB)[0].carrier is link.other
    assert choice_of(link, "paramiko", GIB)[0].carrier is link
    with pytest.raises(UnreachableError, match="Permission denied"):
        choice_of(Link(200e6, other=None), "ssh", GIB)
    with pytest.raises(InputError, match="is not an SSH client"):
        TransferOptions(carrier="pigeon")


def test_signatures_are_kept_and_damage_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(random.Random(4).randbytes(300_000))
    sha, signature = hash_and_sign(path)
    kept = Signatures(tmp_path / "signatures")
    assert kept.load(sha) is None
    kept.save(sha, signature)
    assert kept.load(sha) == signature
    file = tmp_path / "signatures" / sha
    whole = file.read_bytes()
    for bad in damaged(whole):
        file.write_bytes(bad)
        assert kept.load(sha) is None


def damaged(whole: bytes) -> Iterator[bytes]:
    yield b""
    yield whole[:-1]
    yield whole.replace(b"xxh3", b"xxh9")
    yield whole[:-20] + bytes([whole[-20] ^ 1]) + whole[-19:]


@pytest.mark.parametrize(
    ("kind", "said"), [(BLAKE2, ""), (CRC, f"{CRC} "), (None, "md9 "), (None, "?"), (None, "0x")]
)
def test_a_device_says_how_it_signed(tmp_path: Path, kind: str | None, said: str) -> None:
    """What is no signature, or of no kind that is known, is passed over."""
    old = tmp_path / "old"
    old.write_bytes(random.Random(6).randbytes(6 << 20))
    sha, signature = hash_and_sign(old, kind or BLAKE2)
    text = "" if said == "?" else f"{said}{signature.size}\n{signature.entries.hex()}"
    blob = Blob(a_file(tmp_path, old.read_bytes() + b"more"), base=sha)
    facts = Facts(tools=Tools(python3="/usr/bin/python3", dd_fullblock=True))
    session = Session(
        Host("b"), lambda _: None, transfer=TransferContext(signatures=Signatures(tmp_path / "n"))
    )
    answer = Result(0, text.encode(), b"", 0.0)
    session.ask = lambda *_, **__: answer  # type: ignore[method-assign]
    (found,) = with_asked(session, facts, [blob])
    assert (found.delta.bytes if found.delta else None) == (4 if kind else None)


def test_a_device_that_cannot_be_asked_spoils_no_other(tmp_path: Path) -> None:
    """What one device says of its old blob serves all; that it breaks off is its own matter."""
    old = tmp_path / "old"
    old.write_bytes(random.Random(6).randbytes(6 << 20))
    sha, signature = hash_and_sign(old, BLAKE2)
    blob = Blob(a_file(tmp_path, old.read_bytes() + b"more"), base=sha)
    facts = Facts(tools=Tools(python3="/usr/bin/python3", dd_fullblock=True))
    transfer = TransferContext(signatures=Signatures(tmp_path / "none"))
    asked: list[str] = []
    begun, other = threading.Event(), threading.Event()

    def ask(name: str) -> object:
        def answer(*_: object, **__: object) -> Result:
            asked.append(name)
            if name == "dead":
                begun.set()
                other.wait(10)  # still silent while the next one is asked
                raise ConnectionLostError("gone")
            other.set()
            entries = signature.entries
            lines = [entries[at : at + 32].hex() for at in range(0, len(entries), 32)]
            return Result(0, "\n".join([str(signature.size), *lines]).encode(), b"", 0.0)

        return answer

    def session_of(name: str) -> Session:
        session = Session(Host(name), lambda _: None, transfer=transfer)
        session.ask = ask(name)  # type: ignore[method-assign,assignment]
        return session

    with ThreadPoolExecutor(1) as pool:
        dead = pool.submit(with_asked, session_of("dead"), facts, [blob])
        assert begun.wait(10)
        for name in ("alive", "next"):
            (found,) = with_asked(session_of(name), facts, [blob])
            assert found.delta is not None
            assert found.delta.bytes == 4
        assert isinstance(dead.exception(20), ConnectionLostError)
    assert asked == ["dead", "alive"]
