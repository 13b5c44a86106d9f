"""`identity:` of the inventory against what the device says."""

from __future__ import annotations

import pytest

from fleet.facts.gather import check_identity
from fleet.facts.parse import parse
from fleet.model.errors import IdentityError
from fleet.model.facts import Facts
from fleet.model.inventory import Host


def test_a_host_without_identity_is_not_asked() -> None:
    check_identity(Host("a"), Facts())


@pytest.mark.parametrize("wanted", ["abc", "123"])
def test_machine_id_or_serial_number(wanted: str) -> None:
    check_identity(Host("a", identity=wanted), Facts(machine_id="abc", serial_number="123"))


@pytest.mark.parametrize("facts", [Facts(), Facts(machine_id="abc"), Facts(serial_number="x")])
def test_another_or_an_unknown_device_is_refused(facts: Facts) -> None:
    with pytest.raises(IdentityError, match="`identity:` in the inventory is other") as caught:
        check_identity(Host("a", identity="other"), facts)
    assert caught.value.exit_code == 3
    assert (facts.machine_id or "unknown") in str(caught.value)


def test_the_probe_reports_the_serial_number() -> None:
    facts = parse("fleet-facts 1\nserial_number\t2953840\nmachine_id\tabc\nend\n")
    assert (facts.serial_number, facts.machine_id) == ("2953840", "abc")
