"""Writes inspected.json: what ExecuTorch's own Inspector says of the etdumps beside this file.

Made with executorch 1.5.1 and torch 2.13.0: pip install executorch, then run this file. The
etdumps are of a model of ours, run by qnn_executor_runner on the emulator of QAIRT 2.49 with
--profile_level 0, 1 and 2 and three iterations.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
KEYS = ("name", "is_delegated_op", "delegate_backend_name")


def said(path: Path) -> list[dict[str, Any]]:
    """The blocks of one etdump as plain data."""
    inspector = importlib.import_module("executorch.devtools").Inspector(etdump_path=str(path))
    return [
        {
            "name": block.name,
            "events": [
                {**{key: getattr(event, key) for key in KEYS}, "raw": list(event.perf_data.raw)}
                for event in block.events
            ],
        }
        for block in inspector.event_blocks
    ]


if __name__ == "__main__":
    found = {path.name: said(path) for path in sorted(HERE.glob("*.etdp"))}
    text = json.dumps(found, indent=1) + "\n"
    Path(HERE, "inspected.json").write_text(text, "utf-8")
