"""`fleet ab --sustained`: minutes of one side, and the rate at which it settles."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs
from msgspec.structs import replace

from fleet.engine.run.ab.journal import AbJournal
from fleet.engine.run.ab.measuring import settled_record
from fleet.model.record import Measure
from fleet.profiles.compare.sequential import Answer

from ...profiles.compare.made import metrics, record
from ..conftest import Bench
from .test_measuring import answers, begun, gone_on

RATES = (20, 18, 16, 14, 12, 11, 10.2, 10, 9.8)


def test_the_last_third_counts_and_any_problem_is_one_of_the_whole() -> None:
    runs = [
        record(n, metrics=metrics(rate, others={"wall": Measure(100 / rate, "ms")}))
        for n, rate in enumerate(RATES)
    ]
    whole = settled_record(runs)
    assert whole.metrics.decode_tps == 10
    assert whole.metrics.others["wall"] == Measure(10, "ms")
    assert whole.metrics.generated_tokens == 31
    assert (whole.repeat, whole.seconds, whole.started) == (0, 45.0, runs[0].started)
    assert whole.counts
    bad = [structs.replace(runs[0], problems=("failed: status 1",)), *runs[1:]]
    assert settled_record(bad).problems == ("failed: status 1",)


def test_b_that_slows_down_with_each_run_is_worse(bench: Bench, tmp_path: Path) -> None:
    """Its first run is as fast as A's. Six pairs; each side at least three runs."""
    journal = begun(bench, tmp_path, 10)
    journal.close()
    journal = AbJournal.begin(bench.runs, "hot", replace(journal.asked, sustained=0.01))
    program = tmp_path / "b" / "llama-bench"
    count = tmp_path / "count"
    count.touch()
    program.write_text(
        program.read_text()
        .replace(
            "awk -v",
            f'case $* in *"-n 4"*) echo >> {count};; esac\n'  # not the health probe
            f"n=$(wc -l < {count}); [ $((n % 3)) = 0 ] && slow=0.8 || slow=1\n"
            "awk -v slow=$slow -v",
        )
        .replace("rate *= 1", "rate *= slow * 1")
    )
    result = gone_on(bench, journal)
    pairs = journal.pairs(bench.host.name)
    journal.close()
    assert answers(result) == [Answer.FAIL], [pair.b.metrics.decode_tps for pair in pairs]
    assert len(pairs) == 6
    assert pairs[0].b.tags == ("ab-hot", "ab-hot-B")
    single = list(bench.runs.root.glob("hot-000.0b-sustained/*/*/record.json"))
    assert len(single) == 3, "the single runs are kept"
