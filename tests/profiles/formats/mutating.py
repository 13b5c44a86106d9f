"""Profiles damaged by chance, and what may be read out of them at most.

The judge below reads units by a table of its own: a number that comes out must be one that
stands in the file, by the factor of the unit that stands beside it.
"""

from __future__ import annotations

import contextlib
import csv
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fleet.model.errors import ProfileError
from fleet.profiles.formats import detect
from fleet.profiles.formats.base import Profile, decoded

DATA = Path(__file__).parents[1] / "data"
SEEDS = tuple(
    sorted(
        path
        for kind in ("*.json", "*.csv", "*.log", "../real/viewer/*")
        for path in DATA.glob(kind)
    )
)
UNITS = ("us", "ms", "s", "ns", "toks/sec", "", "bytes", "US", "CYCLES", "COUNT", "BYTES", "MS")
NUMBERS = ("-1", "1e999", "NaN", "12,5", "1.234,5", "0", "9" * 400, "UNKNOWN", "null", "1e5", "٣")
TO_MS = {"us": 1e-3, "µs": 1e-3, "μs": 1e-3, "microsec": 1e-3, "ms": 1, "s": 1e3, "sec": 1e3}
TO_MS |= {"ns": 1e-6}
TO_US = {"US": 1, "MICROSEC": 1, "MS": 1e3, "NS": 1e-3, "S": 1e6, "SEC": 1e6}
RATES = {"toks/sec", "tokens/sec", "tok/s", "tokens/s", "t/s"}
TIMES = {"init-time": "init_ms", "time-to-first-token": "ttft_ms"}
TIMES |= {"token-generation-time": "decode_ms"}
PER_SECOND = {"prompt-processing-rate": "prompt_tps", "token-generation-rate": "decode_tps"}
COUNTS = {"num-prompt-tokens": "prompt_tokens", "num-generated-tokens": "generated_tokens"}


def mutated(chance: random.Random) -> bytes:
    """A sample with one to three damages; seldom the binary log, which is refused at once."""
    seeds = SEEDS if chance.random() < 0.05 else [one for one in SEEDS if one.suffix != ".log"]
    data = bytearray(chance.choice(seeds).read_bytes())
    for _ in range(chance.randint(1, 3)):
        data = _damaged(data, chance)
    return bytes(data)


def _damaged(data: bytearray, chance: random.Random) -> bytearray:
    place = chance.randrange(len(data) + 1)
    kind = chance.choices(range(8), (1, 1, 1, 1, 1, 5, 5, 5))[0]
    if kind == 0:
        return data[:place]
    if kind == 1:
        return data[:place] + bytes(chance.randrange(256) for _ in range(3)) + data[place:]
    if kind == 2:
        return data[:place] + data[place + chance.randint(1, 40) :]
    if kind == 3 and data:
        data[place % len(data)] = chance.randrange(256)
        return data
    if kind == 4:
        end = min(len(data), place + 200)
        return data[:end] + data[place:end] + data[end:]
    words = [word.encode() for word in (UNITS if kind < 7 else NUMBERS)]
    have = chance.choice([*(unit.encode() for unit in UNITS if unit), b"5", b"26", b"18536"])
    marks = (b'"', b",") if kind < 7 else (b"", b"")
    for mark in marks:
        found = data.find(mark + have + mark, place)
        found = found if found >= 0 else data.find(mark + have + mark)
        if found >= 0:
            cut = found + len(mark) + len(have)
            return data[: found + len(mark)] + bytearray(chance.choice(words)) + data[cut:]
    return data


def judge(data: bytes) -> str:
    """How it was read; raises AssertionError for a number that does not stand in the file."""
    try:
        found = detect.read(data)
    except ProfileError as error:
        return "error" if error.message else "an error without words"
    assert isinstance(found, Profile)
    if found.format == "genie":
        _judge_genie(json.loads(decoded(data)), found)
    elif found.format == "qnn-csv":
        _judge_csv(decoded(data), found)
    return found.format


def _judge_genie(data: dict[str, Any], found: Profile) -> None:
    stands: dict[str, list[float]] = {}
    for field, value, unit in _fields(data):
        name, factor = "", None
        if field in TIMES:
            name, factor = TIMES[field], TO_MS.get(unit)
        elif field in PER_SECOND:
            name, factor = PER_SECOND[field], 1 if unit in RATES else None
        elif field in COUNTS:
            name, factor = COUNTS[field], 1 if unit in {"", "tokens", "toks"} else None
        if name and factor is not None:
            stands.setdefault(name, []).append(value * factor)
    for name in (*TIMES.values(), *PER_SECOND.values()):
        got = getattr(found.metrics, name)
        if got is not None and not (name == "init_ms" and name not in stands):
            assert name in stands, name
            low, high = min(stands[name]), max(stands[name])
            assert low * 0.999999 <= got <= high * 1.000001, (name, got, stands[name])
    for name in COUNTS.values():
        got = getattr(found.metrics, name)
        assert got is None or 0 <= got <= sum(stands.get(name, ())), (name, got)


def _fields(node: object) -> Iterator[tuple[str, float, str]]:
    if isinstance(node, dict):
        for name, one in node.items():
            number = one.get("value") if isinstance(one, dict) else None
            if isinstance(number, int | float) and abs(number) < 1e300:
                yield name, number, str(one.get("unit", "no unit"))
            yield from _fields(one)
    elif isinstance(node, list):
        for one in node:
            yield from _fields(one)


def _judge_csv(text: str, found: Profile) -> None:
    units: dict[str, set[str]] = {}
    times: list[float] = []
    lines = text.lstrip("\ufeff").splitlines()
    while "Event Identifier" not in lines[0]:
        lines.pop(0)
    place = {name.strip(): number for number, name in enumerate(lines.pop(0).split(","))}
    for row in csv.reader(lines):
        if row:
            identifier = row[place["Event Identifier"]].strip()
            unit = row[place["Unit of Measurement"]].strip()
            units.setdefault(unit.upper(), set()).add(identifier)
            with contextlib.suppress(ValueError):
                times.append(
                    float(row[place["Time"]].strip()) * TO_US.get(unit.upper(), float("nan"))
                )
    times = [one for one in times if one >= 0]  # NaN is not
    for name, one in found.metrics.others.items():
        if one.unit == "us":
            assert name.endswith("_us"), name
            assert min(times) * 0.999999 <= one.value <= max(times) * 1.000001, name
        elif name.endswith("_cycles"):
            assert one.unit == "cycles", name
            assert "CYCLES" in units, name
        elif name.endswith("_bytes"):
            assert one.unit == "bytes", name
    for op in found.ops:
        assert op.value >= 0
        assert op.unit in {"us", "cycles"} or op.unit.upper() in units, op
