"""What people do on devices every day, on every kind of device, each with its own tools."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fleet.engine.everyday.execute import Executing, execute_everywhere
from fleet.engine.everyday.get import Fetching, fetch_everywhere
from fleet.engine.everyday.logs import LogQuery, read_logs
from fleet.engine.pool import DeviceResult
from fleet.engine.session import Session
from fleet.model.errors import DeadlineError

from .test_releases import KINDS, Device, device

__all__ = ["device"]
EVERYWHERE = pytest.mark.parametrize("device", KINDS, indirect=True)


def execute(
    device: Device, *words: str, seconds: float = 20, lease: bool = False
) -> DeviceResult[Any]:
    job = Executing(words, seconds, lease)
    (done,) = execute_everywhere(job, [device.host], device.events.append, parallel=1)
    return done


@EVERYWHERE
def test_a_command_its_streams_and_its_status(device: Device) -> None:
    text = "echo out; echo err >&2; exit 7"
    done = execute(device, "sh", "-c", text)
    assert (done.answer.status, done.answer.stdout) == (7, "out\n"), done.error
    assert "err\n" in str(done.answer.stderr)
    assert done.error is not None
    assert done.error.exit_code == 1
    assert execute(device, "sh", "-c", "exit 0", lease=True).fine


@EVERYWHERE
def test_a_late_command_is_ended(device: Device) -> None:
    done = execute(device, "sh", "-c", "sleep 20 & sleep 20; echo never", seconds=1)
    assert isinstance(done.error, DeadlineError), done.error
    assert done.answer.stdout == ""


@EVERYWHERE
def test_a_terminal_is_a_program_of_this_computer(device: Device, tmp_path: Path) -> None:
    if device.host.os == "windows":
        pytest.skip("the stand-in of a PC answers commands only, it has no shell")
    session = Session(device.host, device.events.append)
    with contextlib.closing(session):
        session.open()
        argv = session.transport.terminal(tmp_path)
        done = subprocess.run(
            argv, input=b"echo in; exit 6\n", capture_output=True, check=False, timeout=60
        )
    assert (done.returncode, done.stdout) == (6, b"in\n"), done.stderr


@EVERYWHERE
def test_files_come_as_they_are(device: Device, tmp_path: Path) -> None:
    if device.host.os == "windows":
        pytest.skip("fleet get needs a POSIX shell on the device")
    make = "d=$(mktemp -d) && cd \"$d\" && mkdir sub && printf 'a\\0b' > 'sub/a b' && echo $d"
    folder = str(execute(device, make).answer.stdout).strip()
    job = Fetching(folder, tmp_path)
    (done,) = fetch_everywhere(job, [device.host], device.events.append, parallel=1)
    assert done.fine, done.error
    assert (tmp_path / Path(folder).name / "sub" / "a b").read_bytes() == b"a\0b"


@EVERYWHERE
def test_logs_come_or_say_why_not(device: Device) -> None:
    if device.host.os == "windows":
        pytest.skip("fleet logs needs a POSIX shell on the device")
    (done,) = read_logs(LogQuery((), 5, 600), [device.host], parallel=1)
    rows = [*done.answer.lines, *done.answer.unread]
    phone = device.host.transport == "adb"
    assert {kind for kind, _ in rows} >= {"service", *(() if phone else ("journal", "dmesg"))}, rows
    assert ("journal" in {kind for kind, _ in rows}) is not phone
