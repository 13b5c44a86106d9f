"""The record of a load on a service, and whether the load was complete."""

from __future__ import annotations

from fleet.serving.bench import Load, LoadReport, TimedRequest

HEALTH = {"name": "tiny", "release": "a" * 16, "emulated": True, "build": "2.51.0"}


def test_a_load_becomes_a_record() -> None:
    load = Load(("hi",), clients=2)
    good = TimedRequest("hi", status=200, text="x", ttft_ms=5.0, total_ms=9.0, tokens=4)
    broken = [TimedRequest("hi", error=text) for text in ("no answer", "HTTP 500")]
    assert LoadReport(load, (good,), 2.0).fine
    assert not LoadReport(load, (), 2.0).fine, "nothing was sent"
    report = LoadReport(load, (good, *broken), 2.0)
    assert not report.fine
    record = report.record("http://127.0.0.1:40123", HEALTH, "2026-11-28T10:00:00Z")
    assert (record.host, record.name, record.emulated) == ("127.0.0.1:40123", "tiny", True)
    assert record.problems == ("failed: 2 of 3 requests: HTTP 500",)
    assert record.metrics.ttft_ms == 5.0
    assert record.metrics.others["requests_per_s"].value == 0.5
    assert record.origin == {"build_id": "2.51.0", "backend": ""}
    assert record.started == "2026-11-28T10:00:00Z"
