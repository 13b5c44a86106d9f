"""How the end of a program of this machine is waited for."""

from __future__ import annotations

import os
import time

import pytest

from fleet.model.deadline import Deadline
from fleet.model.errors import DeadlineError
from fleet.transport.base import Traffic
from fleet.transport.process import Processes


def test_an_end_is_seen_without_asking_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(os, "pidfd_open"):
        pytest.skip("this system has no pidfd_open")

    def asked_again(seconds: float) -> None:
        raise AssertionError(f"slept {seconds} s")

    monkeypatch.setattr(time, "sleep", asked_again)
    done = Processes(Traffic()).run(["sh", "-c", "read a; exit 3"], "sh", Deadline(30))
    assert done.status == 3


@pytest.mark.parametrize("pidfd", [True, False])
def test_a_deadline_ends_it(monkeypatch: pytest.MonkeyPatch, pidfd: bool) -> None:
    if not pidfd:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    processes = Processes(Traffic())
    with pytest.raises(DeadlineError):
        processes.run(["sleep", "60"], "sleep", Deadline(0.05))
    assert processes.run(["sh", "-c", "exit 4"], "sh", Deadline(30)).status == 4
