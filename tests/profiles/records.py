"""Records for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fleet.model.plain import to_plain
from fleet.model.record import Metrics, Record
from fleet.profiles.runs import RunStore, record_files


def record(**changes: object) -> Record:
    """A whole run on a board, changed where it is said."""
    values: dict[str, object] = {
        "run_id": "20261101-100000-aaaaaa", "host": "evk-01", "name": "tiny", "release": "id",
        "runner": "genie", "repeat": 0, "warmup": False, "started": "2026-11-01T10:00:00Z",
        "seconds": 1.0, "status": 0, "metrics": Metrics(ttft_ms=100.0, decode_tps=10.0),
        "finish": "eos", "problems": (), "emulated": True, "argv": ("a",), "env": {}, "files": {},
        "prompt_sha256": "", "origin": {"build_id": "2.51.0.260929181845"},
        "facts": {"soc": {"chip": "QCS9075"}}, "identity": "host-key x", **changes,
    }  # fmt: skip
    return Record(**values)  # type: ignore[arg-type]


def put(root: Path, one: Record) -> Path:
    """As fleet run leaves it: <root>/<run>/<host>/<n>/record.json."""
    folder = root / one.run_id / one.host / str(one.repeat)
    folder.mkdir(parents=True)
    path = folder / "record.json"
    path.write_text(json.dumps(to_plain(one)), "utf-8")
    return path


def run_ids(store: RunStore) -> list[str]:
    """Newest first; only runs that measured something."""
    return sorted({path.parents[2].name for path in store.root.glob("*/*/*/record.json")})[::-1]


def load(store: RunStore, run_id: str = "last") -> list[dict[str, Any]]:
    """All records of a run as plain data."""
    folder = store.root / (run_ids(store)[0] if run_id == "last" else run_id)
    return [json.loads(path.read_text("utf-8")) for path in record_files(folder)]
