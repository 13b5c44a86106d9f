"""Reboots: only with leave, told apart by the boot id, and what a deploy does across one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.engine.deploy import apply as rebooting
from fleet.engine.session import Session
from fleet.model.errors import DeviceError
from fleet.model.events import StepStarted

from .conftest import Bare

pytestmark = pytest.mark.qairt
Make = Callable[..., Bare]
WISH = {"fastrpc": "auto", "packages": ("libatomic1",), "reboot": True}


def test_without_leave_nothing_is_begun(bare: Make) -> None:
    board = bare("bare-evk-nopasswd")
    before = board.tree()
    result = board.deploy(board.spec(**WISH))
    assert result.outcome == "failed"
    assert result.error.hint == "fleet deploy --allow-reboot"  # type: ignore[union-attr]
    assert board.tree() == before


def test_a_deploy_goes_on_after_the_reboot(bare: Make) -> None:
    board = bare("bare-evk-nopasswd")
    before = board.root("cat /proc/sys/kernel/random/boot_id")
    result = board.deploy(board.spec(**WISH), allow_reboot=True)
    assert result.error is None, result.error
    assert board.root("cat /proc/sys/kernel/random/boot_id") != before
    phases = [
        one.text for one in board.events if isinstance(one, StepStarted) and one.step == "reboot"
    ]
    assert phases == [
        "waiting until the device shuts down",
        "waiting until the device is up again",
        "waiting until the services of the device are up",
    ]
    assert "fastrpc" in result.plan.facts.user.groups_live  # type: ignore[union-attr]
    assert board.deploy(board.spec(**WISH)).outcome == "unchanged"


def test_a_board_that_does_not_go_down_is_said(bare: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    board = bare("bare-evk-nopasswd")
    monkeypatch.setattr(rebooting, "DOWN_SECONDS", 1.0)
    session = Session(board.host, board.events.append)
    session.open()
    with pytest.raises(DeviceError, match="did not shut down"):
        rebooting.wait_for_reboot(session, session.boot_id())
    session.close()


def test_a_board_that_stays_away_is_said(bare: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    board = bare("bare-evk-nopasswd")
    monkeypatch.setattr(rebooting, "UP_SECONDS", 3.0)
    session = Session(board.host, board.events.append)
    session.open()
    before = session.boot_id()
    board.lab.power_off("lab001")
    try:
        with pytest.raises(DeviceError, match="did not start again"):
            rebooting.wait_for_reboot(session, before)
    finally:
        session.close()
        board.lab.power_cycle("lab001")


def test_a_board_with_another_host_key_after_the_reboot_is_not_trusted(
    bare: Make, tmp_path: Path
) -> None:
    from fleet.model.errors import HostKeyError

    board = bare("bare-evk-nopasswd")
    session = Session(board.host, board.events.append)
    session.open()
    before = session.boot_id()
    board.lab.fault("lab001", "new-host-key")
    try:
        with pytest.raises(HostKeyError):
            rebooting.wait_for_reboot(session, before)
    finally:
        session.close()
        board.lab.power_cycle("lab001")
