"""Any bytes are a log: no crash, no slow line, nothing that a terminal would obey."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.model.text import harmless
from fleet.triage.knowledge import knowledge
from fleet.triage.text import MAX_LINE, decode, lines_of
from fleet.triage.triage import triage

from .measuring import DATA, cases

SOURCES = [path.read_bytes() for path in sorted((DATA / "qairt").iterdir())] + [
    row["log"].encode()
    for name in ("reported.jsonl", "unseen1.jsonl", "unseen3.jsonl")
    for row in cases(name)
]
ESCAPES = (
    b"\x1b[31m", b"\x1b]0;title\x07", b"\x1b]8;;http://x\x1b\\", b"\x1b[2J", b"\x1bP+q\x1b\\",
    b"\x9b5m", b"\x00", b"\r", b"\x08", b"\xff\xfe", "\u202e".encode(), "\u2028".encode(), b"\x1b",
    b"[bold]", b"\\x1b",
)  # fmt: skip


def mutated(rng: random.Random) -> bytes:
    log = bytearray(rng.choice(SOURCES)[: rng.choice((200, 2000, 20000))])
    for _ in range(rng.randrange(1, 12)):
        at = rng.randrange(len(log) + 1)
        match rng.randrange(6):
            case 0:
                log[at : at + rng.randrange(40)] = b""
            case 1:
                log[at:at] = rng.choice(ESCAPES)
            case 2:
                log[at:at] = rng.randbytes(rng.randrange(20))
            case 3:
                log[at:at] = bytes(log[at : at + 80]) * rng.randrange(4)
            case 4 if log:
                log[at % len(log)] ^= 1 << rng.randrange(8)
            case _:
                log[at:at] = rng.choice(SOURCES)[: rng.randrange(200)]
    return bytes(log)


def assert_plain(text: str) -> None:
    assert not any(ord(one) < 32 or 0x7F <= ord(one) < 0xA0 for one in text.replace("\t", ""))
    assert "\u202e" not in text


@pytest.mark.parametrize("seed", range(10))
def test_mutated_logs(seed: int) -> None:
    """10 x 100 here; the slow tier does 20,000."""
    rng = random.Random(seed)
    for _ in range(100):
        check(mutated(rng))


def check(data: bytes) -> None:
    found = triage(decode(data))
    assert found.verdict in {"healthy", "advice", "problem", "not-recognised"}
    for ranked in found.causes:
        assert 0 <= ranked.confidence <= 0.99
        for evidence in ranked.evidence:
            assert_plain(evidence.text)


@pytest.mark.slow
def test_twenty_thousand_mutated_logs() -> None:
    rng = random.Random(2026)
    for _ in range(20_000):
        check(mutated(rng))


@given(st.binary(max_size=3000))
@settings(max_examples=200)
def test_any_bytes(data: bytes) -> None:
    check(data)


@given(st.text(max_size=400))
@settings(max_examples=300)
def test_harmless_text_stays_harmless(text: str) -> None:
    plain = harmless(text)
    assert_plain(plain.replace("\t", "").replace("\n", ""))
    assert harmless(plain) == plain


def test_a_megabyte_takes_no_second() -> None:
    """Worst lines: nothing repeats, and each begins like a signature."""
    rng = random.Random(1)
    words = ["failed to open", "skel", "14001", "0x80000406", "libQnn", "errno 13", "a" * 60]
    lines = [" ".join(rng.choices(words, k=8)) + f" {number}" for number in range(12_000)]
    text = "\n".join(lines)[: 1 << 20]
    triage("warm")
    began = time.process_time()
    triage(text)
    assert time.process_time() - began < 30, "linear: a second on any machine, thirty on a sick one"


def test_a_long_log_is_read_by_the_patterns_whose_words_it_holds() -> None:
    """All patterns as one automaton took 3 ms for each line that no other line is like."""
    known = knowledge()
    text = "\n".join(f"skel {number}" for number in range(60_000))
    assert len(known.matcher.over(text).numbers) < len(known.matcher.patterns) / 4


def test_one_long_line() -> None:
    found = triage("x" * 5_000_000 + " Failed to create device: 14001")
    assert found.causes == ()
    (line,) = lines_of("y" * 100_000)
    assert len(line.text) == MAX_LINE


def test_utf16_of_a_windows_shell() -> None:
    text = "Stub lib id mismatch: expected (v2.28.2.1), detected (v2.25.17.2)\r\n"
    found = triage(decode(text.encode("utf-16")))
    assert found.causes
