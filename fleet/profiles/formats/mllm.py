"""The reader of the output of mllm's ahead-of-time runners and their forks.

Upstream's qwen2 and llama AOT runners print a summary since 2026-01, times in µs with the rate in
parentheses; the runner of qwen3 prints none. The programs of mllm's first version print lines that
begin with `Prefill Tokens:` and `Prefill Speed:` (mllm issue 206).
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
    """Return the rates of lines such as `prefill ... 12.5 tok/s`, `decode ... 8 t/s`; {} without
    them.
    """
    numbers: dict[str, Measure] = {}
    for phase, pattern in _RATES:
        if match := pattern.search(text):
            numbers |= measured(phase, rate=float(match[1]))
    return numbers


def is_output(text: str) -> bool:
    """Return whether a runner of mllm printed this text.

    The heading of the summary alone is not enough, because other programs print it too.
    """
    summary = SUMMARY in text and "Prefill time" in text
    return MARKER in text or ((summary or _FIRST.search(text) is not None) and bool(rates(text)))


def read(text: str) -> Profile:
    """Return the profile of the output. Raises ProfileError if it has no rates."""
    numbers = rates(text)
    if not numbers:
        raise ProfileError(
            "the output of mllm contains no rates, because not every runner of mllm prints them",
            hint="measure with fleet run, which takes the time of the whole run",
        )
    tokens = _FIRST.search(text)
    if tokens:
        numbers |= {"prompt_tokens": Measure(float(tokens[1]))}
    metrics = replace(Metrics.of(numbers), source=numbers)
    if tokens:
        problem = UNPROVEN.format(tool="mllm")
        return Profile("mllm-log", metrics, runner="mllm", problems=(problem,))
    answer = text.partition(MARKER)[2].strip()
    return Profile("mllm-log", metrics, runner="mllm", text=answer)
