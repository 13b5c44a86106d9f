"""Metrics by name: a row of `KNOWN` is enough for one that only a runner has."""

from __future__ import annotations

import pytest

from fleet.model.metrics import KNOWN, Metric
from fleet.model.record import Measure, Metrics
from fleet.profiles.compare.groups import values_of
from fleet.profiles.compare.metrics import better_way, every, metric, present, value

from .made import record

WORDS = Metrics(decode_tps=10.0, others={"words_tps": Measure(7.0, "words/s")})


def test_a_row_of_the_table_is_enough_for_a_metric_of_a_runner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = [record(metrics=WORDS), record(1, metrics=Metrics(decode_tps=9.0))]
    assert metric("words_tps", records).shown == "words_tps words/s"
    monkeypatch.setitem(KNOWN, "words_tps", Metric("words_tps", "words/s", 1, "words/s"))
    assert metric("words_tps", records).shown == "words/s"
    assert better_way("words_tps", records) == 1
    assert [str(value(each, "words_tps")) for each in records] == ["7.0", "nan"]
    assert every(records) == ["decode_tps", "words_tps"]
    assert present(records) == ["decode_tps", "words_tps"]
    assert str(values_of([list(records)], "words_tps")) == "[[7.0, nan]]"
