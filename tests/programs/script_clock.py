"""Starts a script of ours with a clock of its own around what the script times.

script_clock.py FILE SCRIPT...: when the script ends, the seconds between the marks go to FILE as
JSON. In fleet_litert.py an inference goes from its one input to its one output; in fleet_genai.py
a generation from its options to each token.
"""

import json
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

times, script = Path(sys.argv[1]), sys.argv[2]
del sys.argv[:2]
sys.path.insert(0, sys.argv[sys.argv.index("--site") + 1])
leave, began, took = os._exit, list[int](), list[float]()


def around(kind: Any, first: str, last: str) -> None:
    """Seconds from the latest `first` to each `last`; both are methods of classes of `kind`."""
    (begin, first_name), (end, last_name) = (_method(kind, name) for name in (first, last))
    real_first, real_last = getattr(begin, first_name), getattr(end, last_name)
    early = first_name == "write"  # its own time counts too

    def start(*args: Any, **named: Any) -> Any:
        if early:
            began.append(time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW))
        found = real_first(*args, **named)
        if not early:
            began.append(time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW))
        return found

    def stop(*args: Any, **named: Any) -> Any:
        found = real_last(*args, **named)
        took.append((time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) - began[-1]) / 1e9)
        return found

    setattr(begin, first_name, start)
    setattr(end, last_name, stop)


def _method(module: Any, name: str) -> tuple[Any, str]:
    kind, _, method = name.partition(".")
    return getattr(module, kind), method


def ended(status: int) -> None:
    times.write_text(json.dumps(took))
    leave(status)


if script.endswith("fleet_litert.py"):
    from ai_edge_litert import tensor_buffer

    around(tensor_buffer, "TensorBuffer.write", "TensorBuffer.read")
else:
    import onnxruntime_genai

    first = "GeneratorParams.set_search_options"
    around(onnxruntime_genai, first, "Generator.generate_next_token")
os._exit = ended  # type: ignore[assignment]
runpy.run_path(script, run_name="__main__")
