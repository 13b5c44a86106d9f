"""The judgement of a run by its conditions: a problem that makes it invalid, or a mark on it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from fleet.engine.run.measuring.heat import heat_of, peak
from fleet.engine.run.measuring.series import metric_of
from fleet.model.conditions import Conditions
from fleet.model.gates import DEFAULT_METRIC
from fleet.model.record import Record

REBOOTED = "rebooted"
FIRST = 3  # repeats that the later ones are compared with
RATE_DROP = 0.10  # cf. 24 % in five trials without a pause (mlx-lm, pull request 1010)
RISE = 3.0  # °C that the compute must be hotter than in the first repeats
HOT = 5.0  # °C above the start of the run before a fallen clock is laid to heat
NEAR = 0.9  # share of its limit from which a clock counts as at its limit
_CAPPED = 0.98  # of the hardware's maximum
_KINDS = ("cut", "failed", "wrong", "unreadable", "cpu-fallback")
_CURES = {  # by words of a problem; the first that fits
    "did not end within": "fleet run --timeout 10m (allows more time), or set `timeout:` under "
    "`run:` in the playbook",
    "token limit": "raise `max_tokens:` under `run:` in the playbook, or set "
    "`token_limit_counts: true` there to count runs that reach the limit",
    "context length": "use a shorter prompt, or a model with a longer context",
    "tolerance": "raise `tolerance:` under `run: options:` in the playbook, if this difference "
    "is acceptable; if not, compile the model again",
    "do not match the inputs of the model": "add or correct these inputs under `run: options:` in "
    "the playbook",
    "#25504": "fleet run (tries again), or build llama.cpp from sources without this bug",
    REBOOTED: "fleet run (measures again); if the device reboots again: fleet doctor "
    "--limit {host}",
    "connection broke": "fleet run (measures again)",
}
_LASTING = ("token limit", "context length", "tolerance", "do not match the inputs of the model")
_OTHERS = (
    "fleet run --stream --limit {host} (shows what the program prints); "
    "fleet doctor --limit {host} (examines the device)"
)


def words_of(problem: str) -> str:
    """Return a problem of a record in words, without its kind."""
    if problem == REBOOTED:
        return "the device rebooted during the run"
    kind, _, words = problem.partition(": ")
    return words if kind in _KINDS else problem


def lasting(problem: str) -> bool:
    """Return True for a problem that every repeat of the same run will have."""
    return any(words in problem for words in _LASTING)


def cure_of(problem: str, host: str, playbook: str = "the playbook") -> str:
    """Return what to do about a problem of a record.

    `playbook` is the file with the run settings.
    """
    cure_text = next((cure for words, cure in _CURES.items() if words in problem), _OTHERS)
    return cure_text.replace("{host}", host).replace("the playbook", playbook)


def marks_of(record: Record, earlier: Sequence[Record], metric: str = "") -> tuple[str, ...]:
    """Return the marks of a run, each with its reason.

    `throttled: ...` needs an observation: a lower clock limit, a lower clock under the governor
    `performance` while it got hot, or a lower rate than that of the first repeats while it got
    hotter. `capped: ...` means that a clock was limited below the maximum of the hardware before
    the run. The kernel does not tell if heat or a person caused that.
    """
    first = [record for record in earlier if record.counts][:FIRST]
    reasons = [
        *_limit_fell(record.conditions, first[0].conditions if first else None),
        *_clock_fell(record.conditions),
        *_rate_fell(record, first, metric or DEFAULT_METRIC),
    ]
    return (*(f"throttled: {text}" for text in reasons[:1]), *_capped(record.conditions))


def _gigahertz(value: float) -> str:
    return f"{value / 1e9:.2f}"


def _limit_fell(now: Conditions, first: Conditions | None) -> Iterator[str]:
    """Yield clock limits that fell during this run, or since before the first counting run.

    Samples that are cooler than the start of this run are ignored. The comparison with `first`
    uses the limits before each run and does not depend on heat.
    """
    begin = heat_of(now.before)
    for sample in (*now.during, *((now.after,) if now.after else ())):
        heat = heat_of(sample)
        if begin is not None and heat is not None and heat < begin:
            continue
        for name, hz in sample.limits.items():
            if hz < now.limits.get(name, 0.0):
                yield _fell(name, now.limits[name], hz)
    for name, hz in now.limits.items():
        if first is not None and hz < first.limits.get(name, 0.0):
            yield _fell(name, first.limits[name], hz)


def _fell(name: str, high: float, low: float) -> str:
    return f"the clock limit of {name} fell from {_gigahertz(high)} to {_gigahertz(low)} GHz"


def _clock_fell(now: Conditions) -> Iterator[str]:
    """Yield clocks that were at their limit, and fell below it in two samples after heating up.

    Other governors lower a clock whenever there is little to do, so their clocks say nothing about
    heat.
    """
    begin = heat_of(now.before)
    if begin is None:
        return
    for name, governor in now.governors.items():
        if governor != "performance":
            continue
        was_up, low = False, 0
        for sample in now.samples:
            clock, limit = sample.clocks.get(name), sample.limits.get(name) or now.limits.get(name)
            if clock is None or limit is None:
                continue
            hot = (heat_of(sample) or begin) >= begin + HOT
            low = low + 1 if was_up and hot and clock < NEAR * limit else 0
            was_up = was_up or clock >= NEAR * limit
            if low == 2:
                yield (
                    f"the clock of {name} fell to {_gigahertz(clock)} of {_gigahertz(limit)} GHz "
                    f"at {heat_of(sample):.0f} °C"
                )
                break


def _rate_fell(record: Record, first: Sequence[Record], metric: str) -> Iterator[str]:
    """Yield a rate below all of the first repeats and well below their median, with more heat."""
    value, heat = metric_of(record.metrics, metric), peak(record.conditions)
    values = [v for record in first if (v := metric_of(record.metrics, metric)) is not None]
    heats = [h for record in first if (h := peak(record.conditions)) is not None]
    if value is None or heat is None or len(values) < FIRST or not heats:
        return
    middle = statistics.median(values)
    worse = -1.0 if metric.endswith(("_ms", "_us", "_s")) else 1.0  # a time gets longer
    drop = worse * (middle - value) / abs(middle) if middle else 0.0
    out = value < min(values) if worse > 0 else value > max(values)
    if out and drop > RATE_DROP and heat >= statistics.median(heats) + RISE:
        word = "fell" if worse > 0 else "rose"
        yield (
            f"{metric} {word} by {drop:.0%} since the first {FIRST} runs, while the device "
            f"warmed from {statistics.median(heats):.0f} °C to {heat:.0f} °C"
        )


def _capped(now: Conditions) -> Iterator[str]:
    low = {
        name: (hz, now.maxima[name])
        for name, hz in now.limits.items()
        if name in now.maxima and hz < _CAPPED * now.maxima[name]
    }
    if low:
        clocks = ", ".join(
            f"{name} at {_gigahertz(hz)} of {_gigahertz(top)} GHz"
            for name, (hz, top) in sorted(low.items())
        )
        yield f"capped: {clocks}"
