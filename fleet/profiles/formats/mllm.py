"""What mllm's ahead-of-time runners and their forks print.

Upstream's qwen2 and llama AOT runners print a summary since 2026-01, times in µs with the rate in
parentheses; qwen3's prints none. The programs of mllm's first version print lines that begin with
`Prefill Tokens:` and `Prefill Speed:` (mllm issue 206).
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from fleet.model.errors import ProfileError
from fleet.model.metrics import ANSWER, PROMPT
from fleet.model.record import Measure, Metrics
from fleet.profiles.formats.base import UNPROVEN, Profile, measured

MARKER = "exit/quit'): "
SUMMARY = "=== Performance Summary ==="
_RATE = r"[^\n]{0,80}?(?<![\d.])(\d{1,15}(?:\.\d{1,15})?)\s*(?:tok(?:en)?s?/s|t/s)"
_RATES = (
    (PROMPT, re.compile(rf"prefill{_RATE}", re.IGNORECASE)),
    (ANSWER, re.compile(rf"decod\w*{_RATE}", re.IGNORECASE)),
)
_FIRST = re.compile(r"^Prefill Tokens: (\d{1,9})$", re.MULTILINE)


def rates(text: str) -> dict[str, Measure]:
    """`prefill ... 12.5 tok/s`, `decode ... 8 t/s`; {} where nothing is printed."""
    found: dict[str, Measure] = {}
    for phase, pattern in _RATES:
        if match := pattern.search(text):
            found |= measured(phase, rate=float(match[1]))
    return found


def is_output(text: str) -> bool:
    """Whether a runner of mllm printed this; the heading of its summary alone is anybody's."""
    summary = SUMMARY in text and "Prefill time" in text
    return MARKER in text or ((summary or _FIRST.search(text) is not None) and bool(rates(text)))


def read(text: str) -> Profile:
    """A profile of the output. Raises ProfileError where it has no rates."""
    found = rates(text)
    if not found:
        raise ProfileError(
            "the output of mllm contains no rates, because not every runner of mllm prints them",
            hint="measure with fleet run, which takes the time of the whole run",
        )
    metrics = replace(Metrics.of(found), source=found)
    tokens = _FIRST.search(text)
    if tokens:
        found |= {"prompt_tokens": Measure(float(tokens[1]))}
        metrics = replace(Metrics.of(found), source=found)
        problem = UNPROVEN.format(tool="mllm")
        return Profile("mllm-log", metrics, runner="mllm", problems=(problem,))
    said = text.partition(MARKER)[2].strip()
    return Profile("mllm-log", metrics, runner="mllm", text=said)
