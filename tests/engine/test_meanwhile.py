"""The pool: what the calling thread does meanwhile, and the answers of devices."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fleet.engine.pool import DeviceResult, PoolOptions, on_every_device
from fleet.engine.session import Session
from fleet.model.errors import DeviceError
from fleet.model.inventory import Host

HERE = [Host(name, transport="local") for name in ("a", "b", "c")]


def test_it_is_called_once_when_the_first_are_at_work() -> None:
    called = threading.Event()
    calls: list[str] = []

    def meanwhile() -> None:
        calls.append(threading.current_thread().name)
        called.set()

    def work(_: Session, result: DeviceResult[Any]) -> None:
        assert called.wait(10)
        result.outcome = "ok"

    results = on_every_device(HERE, work, lambda _: None, PoolOptions(meanwhile=meanwhile))
    assert [one.outcome for one in results] == ["ok"] * 3
    assert calls == [threading.current_thread().name]


def test_what_it_raises_ends_the_work() -> None:
    ended = threading.Event()

    def work(session: Session, _: DeviceResult[Any]) -> None:
        try:
            while True:
                session.check()
        finally:
            ended.set()

    def meanwhile() -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        on_every_device(HERE[:1], work, lambda _: None, PoolOptions(meanwhile=meanwhile))
    assert ended.wait(10)


def test_the_answer_of_a_device_that_gave_none_is_its_error() -> None:
    def work(session: Session, result: DeviceResult[str]) -> None:
        if session.host.name == "c":
            raise DeviceError("the board is on fire")
        result.value = session.host.name

    results = on_every_device(HERE, work, lambda _: None)
    assert [result.answer for result in results[:2]] == ["a", "b"]
    with pytest.raises(DeviceError, match="on fire"):
        results[2].answer  # noqa: B018
    with pytest.raises(DeviceError, match="gave no answer: not attempted"):
        DeviceResult[str](HERE[0], "not attempted").answer  # noqa: B018
