"""What the calling thread does while the first devices are connected."""

from __future__ import annotations

import threading

import pytest

from fleet.engine.pool import DeviceResult, on_every_device
from fleet.engine.session import Session
from fleet.model.inventory import Host

HERE = [Host(name, transport="local") for name in ("a", "b", "c")]


def test_it_is_called_once_when_the_first_are_at_work() -> None:
    called = threading.Event()
    calls: list[str] = []

    def meanwhile() -> None:
        calls.append(threading.current_thread().name)
        called.set()

    def work(_: Session, result: DeviceResult) -> None:
        assert called.wait(10)
        result.outcome = "ok"

    results = on_every_device(HERE, work, lambda _: None, parallel=2, meanwhile=meanwhile)
    assert [one.outcome for one in results] == ["ok"] * 3
    assert calls == [threading.current_thread().name]


def test_what_it_raises_ends_the_work() -> None:
    ended = threading.Event()

    def work(session: Session, _: DeviceResult) -> None:
        try:
            while True:
                session.check()
        finally:
            ended.set()

    def meanwhile() -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        on_every_device(HERE[:1], work, lambda _: None, parallel=1, meanwhile=meanwhile)
    assert ended.wait(10)
