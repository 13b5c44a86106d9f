"""Records as a board would give them, made up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from fleet.model.conditions import Conditions, Sample
from fleet.model.plain import to_plain
from fleet.model.record import Measure, Metrics, Op, Record

OLD, NEW = "2.50.0.260828120000", "2.51.0.260929181845"


def conditions(start: float = 40.0, **changes: Any) -> Conditions:
    values: dict[str, Any] = {
        "before": Sample(-1, {"cpu0": start, "nsp0": start - 3}, {"cpu:policy0": 2.4e9}, 0.2),
        "governors": {"cpu:policy0": "performance"},
        "limits": {"cpu:policy0": 2.4e9},
        **changes,
    }
    return Conditions(**values)


def record(repeat: int = 0, host: str = "evk-01", **changes: Any) -> Record:
    values: dict[str, Any] = {
        "run_id": "20261101-100000-aaaaaa", "host": host, "name": "llm", "release": "r1" * 8,
        "runner": "genie", "repeat": repeat, "warmup": False,
        "started": f"2026-11-01T10:{repeat:02}:00Z", "seconds": 5.0, "status": 0,
        "metrics": Metrics(), "finish": "eos", "problems": (), "emulated": False,
        "argv": ("bin/genie-t2t-run", "-c", "/opt/fleet/runs/20261101-100000-aaaaaa-r0/c.json"),
        "env": {"LD_LIBRARY_PATH": "/opt/fleet/releases/llm/r1r1r1r1/lib"},
        "prompt_sha256": "ab" * 32,
        "files": {"bundle/model.bin": "m" * 64, "lib/libQnnHtp.so": OLD},
        "origin": {"build_id": OLD, "runtime": "qairt-2.50"},
        "facts": {"soc": {"chip": "QCS9075"}, "os_id": "ubuntu", "kernel": "6.8"},
        "identity": f"machine-id {host}", "fleet": "0.1.0", "conditions": conditions(), **changes,
    }  # fmt: skip
    return Record(**values)


def metrics(decode: float | None, **changes: Any) -> Metrics:
    values: dict[str, Any] = {
        "prompt_tokens": 29, "generated_tokens": 31, "decode_tps": decode, **changes
    }  # fmt: skip
    return Metrics(**values)


def repeats(values: Sequence[float | None], **changes: Any) -> list[Record]:
    """One run; one record for each decode_tps."""
    return [record(n, metrics=metrics(one), **changes) for n, one in enumerate(values)]


def separate(values: Sequence[float | None], **changes: Any) -> list[Record]:
    """A run of one repeat for each decode_tps."""
    return [
        record(
            host=changes.get("host", "evk-01"),
            run_id=f"20261101-10{n:02}00-aaaaaa",
            started=f"2026-11-01T10:{n:02}:00Z",
            metrics=metrics(decode),
            **{name: value for name, value in changes.items() if name != "host"},
        )
        for n, decode in enumerate(values)
    ]


def newer(records: Sequence[Record], run_id: str = "") -> list[Record]:
    """The same with the next runtime, half a minute after each: measured in turns."""
    return [
        replace(
            one,
            run_id=run_id or f"{one.run_id[:-6]}bbbbbb",
            release="r2" * 8,
            started=one.started.replace(":00Z", ":30Z"),
            argv=tuple(word.replace(one.run_id, run_id or one.run_id) for word in one.argv),
            files={**one.files, "lib/libQnnHtp.so": NEW},
            origin={**one.origin, "build_id": NEW, "runtime": "qairt-2.51"},
        )
        for one in records
    ]


def noisy(middle: float, count: int, seed: int, noise: float = 0.02) -> list[float]:
    rng = np.random.default_rng(seed)
    return [round(float(v), 3) for v in middle * np.exp(noise * rng.standard_normal(count))]


def op(name: str, value: float, ran_on: str = "npu", shape: str = "1x64", unit: str = "us") -> Op:
    return Op(name, value, unit, "Conv2d", shape, ran_on)


def other(name: str, value: float, unit: str) -> Metrics:
    return Metrics(others={name: Measure(value, unit)})


def save(path: Path, records: Sequence[Record]) -> Path:
    """As JSON Lines."""
    path.write_text("".join(json.dumps(to_plain(one)) + "\n" for one in records), "utf-8")
    return path
