"""What a device answers is input like any other: a value, or one clear error, never a crash."""

from __future__ import annotations

import contextlib
import random
import string
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.device.shell import MARK, AfterMark
from fleet.engine.run.run import keep_files
from fleet.engine.status import parse_status
from fleet.model.errors import FleetError
from fleet.model.manifest import Manifest
from fleet.ops import collected
from fleet.ops.collected import Collected
from fleet.ops.lease import parse_lease
from fleet.ops.release import parse_state
from fleet.ops.system.state import parse_system
from fleet.ops.upload import Receipt

SHA = "ab" * 32
NOTHING = Manifest("app", ())
STATE = (
    f"motd\nfleet-state 1\ncurrent 0123\ninstalled\nhistory 0122\nhistory 0123\n"
    f"have {SHA}\npart {SHA} 1000\nbad {SHA}\nunlinked {SHA}\nend\n"
)
STATUS = (
    "fleet-status 1\nname app 0123 installed 0\nmade app 1700000000\nhistory app 0122\n"
    'manifest app {"origin": {"runtime": "x"}}\nend\n'
)
LEASE = (
    "fleet-lease 1\nplace /var/tmp/fleet-lease\nheld write 7 a%40b deploy run1 tok 50 12 run\n"
    "dropped reserve 3 a%40b = = tok 50 - idle\ngot write 8\nraced\nfreed\nend\n"
)
SYSTEM = (
    "fleet-system 1\ntool\tapt-get\nmanager\tapt\nlists\tyes\nsource\tdeb x y\n"
    "installed\tlibc6\t2.36\tinstalled\ncandidate\tlibc6\t2.37\nhalfway\tacl\tunpacked\n"
    "group\tfastrpc\tubuntu,root\nnogroup\tnpu\nfile\t/etc/x\tfile\t644\troot\troot\tx6162\n"
    "file\t/etc/y\tlink\t\t\t\t2f7a\nunit\tssh.service\tloaded\tactive\tenabled\n"
    "rule\t/etc/udev/rules.d/1.rules\tKERNEL==x\nreboot\tyes\nend\n"
)
PARSERS: dict[str, tuple[str, Callable[[str, str], object]]] = {
    "state": (STATE, lambda text, host: parse_state(text, host, NOTHING)),
    "status": (STATUS, parse_status),
    "lease": (LEASE, parse_lease),
    "system": (SYSTEM, parse_system),
}


def mutated(text: str, dice: random.Random) -> str:
    """One of: a piece gone, doubled, swapped, cut off, other characters, words without values."""
    lines = text.split("\n")
    where = dice.randrange(len(lines))
    match dice.randrange(7):
        case 0:
            del lines[where]
        case 1:
            lines.insert(where, lines[dice.randrange(len(lines))])
        case 2:
            lines[where] = lines[where].split(" ")[0].split("\t")[0]
        case 3:
            words = lines[where].replace("\t", " ").split(" ")
            dice.shuffle(words)
            lines[where] = " ".join(words)
        case 4:
            return text[: dice.randrange(len(text))] + "\nend\n"
        case 5:
            odd = "".join(dice.choice(string.printable + "\x00\x1b\u202e²٣") for _ in range(6))
            lines[where] = lines[where][: dice.randrange(len(lines[where]) + 1)] + odd
        case _:
            lines[where] += " " + "9" * 30
    return "\n".join(lines)


@pytest.mark.parametrize("kind", PARSERS)
def test_lying_answers(kind: str) -> None:
    sample, parse = PARSERS[kind]
    parse(sample, "board")
    dice = random.Random(kind)
    refused: list[FleetError] = []
    for _ in range(3000):
        text = sample
        for _ in range(dice.randrange(1, 4)):
            text = mutated(text, dice)
        try:
            parse(text, "board")
        except FleetError as error:
            refused.append(error)
    assert refused, "nothing was refused: the texts are too tame"
    assert {error.device for error in refused} == {"board"}
    assert max(len(error.message) for error in refused) < 600


@settings(max_examples=150)
@given(st.text(max_size=300))
def test_any_text_between_head_and_end(text: str) -> None:
    for sample, parse in PARSERS.values():
        head = next(line for line in sample.split("\n") if line.startswith("fleet-"))
        with contextlib.suppress(FleetError):
            parse(f"{head}\n{text}\nend\n", "board")


@settings(max_examples=150)
@given(st.lists(st.binary(max_size=200), max_size=8))
def test_any_bytes_of_a_receiver(chunks: list[bytes]) -> None:
    receipt = Receipt()
    for chunk in chunks:
        receipt.take(chunk)


def collect(stream: bytes, size: int = 7) -> Collected:
    one = Collected()
    for start in range(0, len(stream), size):
        one.take(stream[start : start + size])
    return one


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_results_in_any_pieces(size: int) -> None:
    stream = b"file 3 a b\nx\ny\nfile 0 empty\n\nfile 4 d/e\n1234\nend\n"
    got = collect(stream, size)
    assert got.files == {"a b": b"x\ny", "empty": b"", "d/e": b"1234"}
    assert got.whole


@pytest.mark.parametrize(
    "name",
    [
        *("../../x", "/etc/passwd", "a/../../x", "..", ".", "", "a\x1b[31mb", "a\x00b", "\u202ex"),
        "a\rb",
    ],
)
def test_names_that_lead_elsewhere_are_left_out_and_the_rest_is_read(name: str) -> None:
    got = collect(b"file 3 %s\nabc\nfile 2 good\nok\nend\n" % name.encode())
    assert got.files == {"good": b"ok"}
    assert got.whole


def test_a_file_of_ten_gigabytes_is_never_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Announced larger than what fits, it is thrown away while it comes; what follows is read."""
    monkeypatch.setattr(collected, "LARGEST", 1 << 20)
    chunk = bytes(1 << 16)
    one = Collected()
    tracemalloc.start()
    try:
        one.take(b"file 10000000000 huge\n")
        for _ in range(200):
            one.take(chunk)
        one.take(b"file 9999999999999999999999999999 no number of ours\n")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    assert one.files == {}
    assert not one.whole, "it was announced longer than what came"


def test_many_small_files_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collected, "LARGEST", 1000)
    got = collect(b"".join(b"file 400 %d\n%s\n" % (n, b"x" * 400) for n in range(5)) + b"end\n")
    assert sorted(got.files) == ["0", "1"]
    assert got.whole


def test_a_line_without_an_end_is_not_kept() -> None:
    one = Collected()
    tracemalloc.start()
    try:
        for _ in range(100):
            one.take(b"x" * (1 << 16))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    assert one.files == {}


def test_noise_before_the_mark_is_not_kept() -> None:
    heard: list[bytes] = []
    after = AfterMark(heard.append)
    tracemalloc.start()
    try:
        for _ in range(100):
            after(b"y" * (1 << 16))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    half = len(MARK) // 2
    after(MARK[:half])
    after(MARK[half:] + b"content")
    assert heard == [b"content"]


def test_results_are_kept_beside_our_own_files(tmp_path: Path) -> None:
    """The device chose the names: ours stay, impossible ones are said, the rest is there."""
    (tmp_path / "stdout.log").write_bytes(b"ours")
    raw = {
        "good": b"1",
        "d/good": b"2",
        "stdout.log": b"theirs",
        "record.json": b"theirs",
        "record.json/x": b"theirs",
        "good/below a file": b"3",
        "d": b"in the place of a folder",
        "n" * 300: b"4",
    }
    lost = keep_files(tmp_path, raw)
    assert len(lost) == len(raw) - 2
    assert all(len(one) < 200 for one in lost)
    found = {str(p.relative_to(tmp_path)): p.read_bytes() for p in tmp_path.rglob("*.*")}
    assert found == {"stdout.log": b"ours"}
    assert (tmp_path / "good").read_bytes() == b"1"
    assert (tmp_path / "d" / "good").read_bytes() == b"2"
