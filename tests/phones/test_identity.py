"""A second phone at the same address gets nothing that was meant for the first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.config.inventory import load_inventory
from fleet.engine.session import Session
from fleet.lab import Lab, LabPhones
from fleet.model.errors import IdentityError
from fleet.model.events import Event
from fleet.transport.base import Identity
from tests.chaos import Chaos


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Lab]:
    with Lab.up(
        tmp_path / "lab", count=0, phones=LabPhones(2, kind="phone-emulator"), base_port=0
    ) as lab:
        yield lab


def test_another_phone_after_a_reconnection_is_refused(pair: Lab) -> None:
    first, second = pair.phones
    with Chaos(first.port, []) as cable:
        host = load_inventory(pair.inventory).hosts[0]
        seen: list[Event] = []
        session = Session(replace(host, serial=f"127.0.0.1:{cable.port}"), seen.append)
        session.open()
        assert session.identity == "adb PHONE001"
        session.reopen()
        cable.plug_into(second.port)
        with pytest.raises(IdentityError, match="expected PHONE001, found PHONE002"):
            session.reopen()
        session.close()


def test_the_socket_where_it_hangs_is_no_identity() -> None:
    assert Identity("adb", "R5C usb:1-4").same(Identity("adb", "R5C usb:2-1"))
    assert not Identity("adb", "R5C usb:1-4").same(Identity("adb", "R5D usb:1-4"))
    assert not Identity("adb", "X").same(Identity("host-key", "X"))
