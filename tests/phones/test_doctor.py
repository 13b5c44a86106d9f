"""The doctor over adb: the same look under mksh and toybox, the same words."""

from __future__ import annotations

import pytest

from fleet.doctor.examine import Round, examine
from fleet.lab import LabPhones
from fleet.model.diagnosis import UNCHECKED, Diagnosis
from fleet.runtimes.store import RuntimeStore

from .conftest import Desk, Make


def look(one: Desk) -> Diagnosis:
    (found,) = examine(one.hosts, lambda _: None, Round())
    return found


@pytest.mark.qairt
def test_a_phone(desk: Make, qairt_store: RuntimeStore) -> None:
    one = desk(qairt_store)
    found = look(one)
    assert found.verdict == UNCHECKED, "nothing is deployed, so no session was opened"
    assert {check.status for check in found.checks} == {"ok", "unknown"}
    assert found.causes == ()
    assert found.round_trips == 1


@pytest.mark.qairt
@pytest.mark.parametrize(
    ("fault", "cause", "layer"),
    [
        ("node-root-only", "fastrpc-node-permission", "nodes"),
        ("noexec-storage", "noexec", "os"),
        ("selinux-refusal", "android-selinux", "nodes"),
        ("full-data", "disk-full", "os"),
        ("read-only", "storage-read-only", "os"),
    ],
)
def test_a_fault_of_a_phone_is_named(
    desk: Make, qairt_store: RuntimeStore, fault: str, cause: str, layer: str
) -> None:
    one = desk(qairt_store)
    one.lab.fault("phone001", fault)
    found = look(one)
    one.lab.heal("phone001", fault)
    assert found.causes[0].cause.id == cause
    assert found.causes[0].cause.layer == layer
    assert found.causes[0].confidence > 0.7, "a fact holds on every platform"
    assert found.causes[0].fixes


@pytest.mark.qairt
@pytest.mark.parametrize(
    ("fault", "cause"), [("offline", "device-unreachable"), ("unauthorized", "adb-unauthorized")]
)
def test_states_of_adb(desk: Make, qairt_store: RuntimeStore, fault: str, cause: str) -> None:
    one = desk(qairt_store, LabPhones(1, kind="phone-emulator"))
    one.lab.fault("phone001", fault)
    found = look(one)
    one.lab.heal("phone001", fault)
    assert found.verdict == UNCHECKED
    assert found.causes[0].cause.id == cause
