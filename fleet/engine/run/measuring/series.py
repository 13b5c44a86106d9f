"""The number of repeats of a run: fixed, until the interval is narrow, or for a time."""

from __future__ import annotations

import time
from collections.abc import Sequence

from fleet.model.gates import DEFAULT_METRIC, UntilSpec
from fleet.model.playbook import RunSpec
from fleet.model.record import Metrics, Record

HOPELESS = 3  # runs without the metric: further runs will not have it either


def metric_of(metrics: Metrics, name: str) -> float | None:
    """Return a metric by its name, a field of Metrics or one of `others`; None if it is missing."""
    if name in {"others", "source"}:
        return None
    own = getattr(metrics, name, None)
    if own is not None:
        return float(own)
    other = metrics.others.get(name)
    return other.value if other else None


def metric_names(metrics: Metrics) -> list[str]:
    """Return the names of all metrics that have a value."""
    own = [name for name in Metrics.__struct_fields__ if metric_of(metrics, name) is not None]
    return own + sorted(metrics.others)


def warm(run: RunSpec, records: Sequence[Record]) -> bool:
    """Return True if these warm-ups are enough, after `settle` additional ones at the latest."""
    from fleet.profiles.stats.trend import steady  # noqa: PLC0415 - numpy

    more = len(records) - run.warmups
    if more < 0 or more >= run.settle:
        return more >= 0
    return steady([metric_of(r.metrics, DEFAULT_METRIC) or r.seconds or 0.0 for r in records])


class Series:
    """The rule that decides before each counted run if another run is needed.

    At the end, `outcome` is the result of `until`, and `warning` is the reason why it was not
    reached; "" if there is nothing to report.
    """

    def __init__(self, run: RunSpec) -> None:
        self._run = run
        self._began: float | None = None
        self.outcome = ""
        self.warning = ""

    def begin(self) -> None:
        """Note that a run begins now. The time of `sustained` counts from the first run."""
        self._began = self._began or time.monotonic()

    @property
    def cools(self) -> bool:
        """True if the next run waits for the device to cool; False during `sustained`."""
        return self._run.cool is not None and not (self._run.sustained and self._began)

    def word(self, number: int) -> str:
        """Return the name of run `number` (from 0) to show while it runs."""
        run = self._run
        if run.sustained:
            spent = time.monotonic() - (self._began or time.monotonic())
            return f"run {number + 1}, {spent:.0f} of {run.sustained:g} s"
        if run.until:
            return f"run {number + 1} of at most {run.until.at_most}"
        return f"run {number + 1} of {run.repeats}"

    def wants(self, records: Sequence[Record]) -> bool:
        """Return True if another run is needed after these records; warm-ups do not count."""
        done = [record for record in records if not record.warmup]
        if len(done) < self._run.repeats:
            return True
        if self._run.sustained:
            return self._began is None or time.monotonic() - self._began < self._run.sustained
        return self._run.until is not None and self._wider(self._run.until, done)

    def _wider(self, until: UntilSpec, done: Sequence[Record]) -> bool:
        if len(done) < HOPELESS:
            return len(done) < until.at_most
        good = [record for record in done if record.counts]
        if not good:
            self.warning = f"no run was valid, so {until.metric} has no confidence interval"
            return False
        values = [
            v for record in good if (v := metric_of(record.metrics, until.metric)) is not None
        ]
        if not values:
            known = ", ".join(metric_names(good[0].metrics)) or "no metrics"
            self.warning = f"no run has the metric '{until.metric}'; the runs have: {known}"
            return False
        return self._judge(until, values, len(done))

    def _judge(self, until: UntilSpec, values: Sequence[float], runs: int) -> bool:
        # numpy is only loaded where it is needed: `fleet deploy` starts without it
        from fleet.profiles.stats.interval import interval  # noqa: PLC0415
        from fleet.profiles.stats.trend import steady  # noqa: PLC0415

        estimate = interval(values, until.level)
        width = f"{estimate.width:.1%} wide" if estimate else "unknown"
        text = f"after {runs} runs, the confidence interval of {until.metric} is {width}"
        warming = estimate is not None and (estimate.drift != 0 or not steady(values))
        if estimate is not None and estimate.width < until.narrower and not warming:
            self.outcome = text
            return False
        if runs >= until.at_most:
            why = (
                f"but the playbook or --until asks for less than {until.narrower * 100:g}%; try "
                "more runs or fix the conditions (docs/measuring.md)"
            )
            if warming:
                why = "and the values still drift; warm up longer: fleet run PLAYBOOK --warmups 4"
            self.warning = f"{text}, {why}"
            return False
        return True
