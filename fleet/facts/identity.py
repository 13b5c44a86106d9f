"""A check that the device is the one in the inventory, before anything is written."""

from __future__ import annotations

from fleet.model.errors import IdentityError
from fleet.model.facts import Facts
from fleet.model.inventory import Host


def check_identity(host: Host, facts: Facts) -> None:
    """Compare `identity:` of the inventory with the identity that the device reports.

    It must equal the machine id (/etc/machine-id), the serial number of the chip
    (/sys/devices/soc0/serial_number), or on Android ro.serialno. Raises IdentityError if it equals
    none. A host without `identity:` is not checked.
    """
    if host.identity is None:
        return
    reported = {"machine id": facts.machine_id, "serial number": facts.serial_number}
    if facts.android is not None:
        reported["ro.serialno"] = facts.android.serialno
    if host.identity in {value for value in reported.values() if value}:
        return
    shown = ", ".join(f"{name} {value or 'unknown'}" for name, value in reported.items())
    raise IdentityError(
        "the device at this address is not the device of the inventory: `identity:` in the "
        f"inventory is {host.identity}, but the device reports {shown}",
        step="identity",
        hint="correct the address in the inventory; if you replaced the board on purpose, "
        "correct `identity:`",
    )
