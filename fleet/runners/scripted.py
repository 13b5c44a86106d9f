"""The base of runners whose program is a script of fleet, for the Python of the device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fleet.model.metrics import ANSWER, PROMPT
from fleet.model.record import Measure
from fleet.profiles.formats.base import measured
from fleet.runners.base import Kit, Start, reached_limit
from fleet.runners.options import Defaults
from fleet.runtimes.packages import SITE

OUTCOME = "outcome.json"


class Scripted(Defaults):
    """A runner whose script loads the model, checks or measures it, and writes OUTCOME."""

    python = True

    def health(self, kit: Kit, timeout: float) -> Start | None:
        """Return the start that loads the model, runs it if loading is not enough, and ends."""
        return self._start(kit, timeout, "--check")

    def start(self, kit: Kit) -> Start:
        """Return the start of warm-ups and timed runs of one loaded model."""
        return self._start(kit, kit.run.timeout)

    def _start(self, kit: Kit, timeout: float, *more: str) -> Start:
        raise NotImplementedError


def script_argv(script: str, timeout: float, *more: str) -> tuple[str, ...]:
    """Return the command for a script of the release; `more` are options of the script."""
    return (
        *("python3", "-I", "{release}/" + script, "--site", "{release}/" + SITE),
        *("--spec", "{work}/config.json", "--outcome", "{work}/" + OUTCOME),
        *("--timeout", f"{timeout:g}", *more),
    )


def finished(data: Mapping[str, Any], kit: Kit) -> tuple[str | None, list[str], tuple[str, ...]]:
    """Return how a generation ended, its problems and its marks."""
    finish = next((end for end in ("eos", "token-limit") if end == data.get("finish")), None)
    if data.get("cut_by_context") is True:
        return finish, ["cut: the output filled the context length of the model"], ()
    problems, marks = reached_limit(kit.run) if finish == "token-limit" else ([], ())
    return finish, problems, marks


def token_times(data: Mapping[str, Any]) -> dict[str, Measure]:
    """Return the times of a generation.

    `token_seconds` in the data are the times of its tokens after its beginning.
    """
    numbers: dict[str, Measure] = {}
    if _number(data.get("init_seconds")):
        numbers["init_ms"] = Measure(1000 * data["init_seconds"], "ms")
    times = data.get("token_seconds")
    times = [time for time in times if _number(time)] if isinstance(times, list) else []
    asked = data["prompt_tokens"] if _number(data.get("prompt_tokens")) else 0
    if not times:
        return numbers
    numbers["ttft_ms"] = Measure(1000 * times[0], "ms")
    if asked > 0:
        numbers |= measured(PROMPT, asked, asked / times[0] if times[0] > 0 else None)
    took = times[-1] - times[0]
    if len(times) > 1 and took > 0:
        return numbers | measured(ANSWER, len(times), (len(times) - 1) / took, 1000 * took)
    return numbers | measured(ANSWER, len(times))


def _number(value: object) -> bool:
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    return fits and math.isfinite(value) and 0 <= value < 1e9  # type: ignore[arg-type,operator]
