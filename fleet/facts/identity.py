"""Is this the device that the inventory means? Asked before anything is written."""

from __future__ import annotations

from fleet.model.errors import IdentityError
from fleet.model.facts import Facts
from fleet.model.inventory import Host


def check_identity(host: Host, facts: Facts) -> None:
    """Compare `identity:` of the inventory with what the device says of itself.

    The machine id (/etc/machine-id) or the serial number of the chip
    (/sys/devices/soc0/serial_number), on Android also ro.serialno, must be it.
    Raises IdentityError when none is; a host without `identity:` is not asked.
    """
    if host.identity is None:
        return
    said = {"machine id": facts.machine_id, "serial number": facts.serial_number}
    if facts.android is not None:
        said["ro.serialno"] = facts.android.serialno
    if host.identity in {value for value in said.values() if value}:
        return
    shown = ", ".join(f"{name} {value or 'unknown'}" for name, value in said.items())
    raise IdentityError(
        "the device at this address is not the device of the inventory: `identity:` in the "
        f"inventory is {host.identity}, but the device reports {shown}",
        step="identity",
        hint="correct the address in the inventory; if you replaced the board on purpose, "
        "correct `identity:`",
    )
