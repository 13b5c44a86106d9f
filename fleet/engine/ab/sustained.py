"""One side of `fleet ab --sustained`: runs without a pause, and the rate at which they settle.

In single turns A and B share one chip and its heat. After minutes of one side alone the chip is as
hot as that side makes it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from fleet.engine.running import RunJob, run_device
from fleet.model.record import Measure, Metrics, Record

SETTLED = 3  # the last third of the runs counts
LEAST_RUNS = 3


def run_sustained(job: RunJob, seconds: float) -> Record:
    """Run one side for so many seconds and store one record for all of it.

    The single runs are kept under a run id of their own, with a tag that ends with `-sustained`.
    """
    records: list[Record] = []
    spec = replace(job.run, repeats=LEAST_RUNS, sustained=seconds)
    tags = (job.tags[0], f"{job.tags[-1]}-sustained")
    run_device(replace(job, run=spec, run_id=f"{job.run_id}-sustained", tags=tags), records)
    whole = settled_record(records)
    folder = job.store.folder(job.run_id, whole.host, 0, warmup=False)
    return job.store.save(folder, structs.replace(whole, run_id=job.run_id, tags=job.tags))


def settled_record(records: Sequence[Record]) -> Record:
    """Return one record: medians of the last third of the runs, problems of all of them."""
    last = records[-math.ceil(len(records) / SETTLED) :]
    problems = dict.fromkeys(problem for record in records for problem in record.problems)
    return structs.replace(
        records[-1],
        repeat=0,
        started=records[0].started,
        seconds=sum(record.seconds or 0.0 for record in records),
        metrics=_medians([record.metrics for record in last]),
        problems=tuple(problems),
        artifacts={},
        ops=(),
    )


def _medians(found: Sequence[Metrics]) -> Metrics:
    own = [name for name in Metrics.__struct_fields__ if name not in {"others", "source"}]
    values = {name: [getattr(metrics, name) for metrics in found] for name in own}
    named = {name: Measure(statistics.median(of))
             for name, of in values.items() if None not in of}  # fmt: skip
    for name, first in found[0].others.items():
        same = [metrics.others[name].value for metrics in found if name in metrics.others]
        named[name] = Measure(statistics.median(same), first.unit)
    return Metrics.of(named)
