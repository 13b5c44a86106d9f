"""The devices that a command means."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.cli.common import hosts_of
from fleet.model.errors import InputError

PHONES = """\
all:
  hosts:
    pa: {transport: adb, serial: LAB1}
    pb: {transport: adb, serial: LAB1}
    pc: {transport: adb, serial: LAB1, adb_server: '127.0.0.1:5038'}
    pd: {transport: adb}
    pe: {transport: adb}
"""


def test_two_names_with_one_serial_number_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "i.yaml"
    path.write_text(PHONES)
    with pytest.raises(InputError, match="pa and pb are one device: both have the serial number"):
        hosts_of(path, None)
    hosts = hosts_of(path, ["pa,pc,pd,pe"])
    assert [host.name for host in hosts] == ["pa", "pc", "pd", "pe"], "the others are different"
