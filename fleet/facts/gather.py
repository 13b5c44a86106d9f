"""Collection of a device's facts over a transport, in exactly one round trip."""

from __future__ import annotations

import re
from functools import cache
from threading import Thread

from fleet.data import load
from fleet.device.texts import plain, text_of
from fleet.facts.parse import parse
from fleet.model.command import Call, Command, script
from fleet.model.deadline import Deadline
from fleet.model.errors import IdentityError
from fleet.model.facts import Facts
from fleet.model.inventory import Host
from fleet.transport.base import Transport

# On Android, HOME is /, which is not writable.
_ANDROID_HOME = """if command -v getprop >/dev/null 2>&1; then
FLEET_BOARD_HOME=${FLEET_BOARD_HOME:-/data/local/tmp}; fi
"""


_ALL, _END_OF_ALL = "\n# all: ", "# end of all\n"


@cache
def source(*, android: bool = False) -> str:
    """Return the probe without its comments, because dropbear rejects commands of 9000 bytes or
    more.

    Source: MAX_CMD_LEN in src/sysoptions.h of mkj/dropbear (2024.85). With `android` (behind adb,
    which accepts 64 KiB) the script also collects Android's own facts.
    """
    text = _code("probe.sh")
    if not android:
        return text
    return _ANDROID_HOME + text.removesuffix("put end\n") + _code("android.sh") + "put end\n"


@cache
def short_source(*, android: bool = False) -> str:
    """Return the part of the probe for a transfer (15 ms, not 45), with `android` for a phone."""
    text = _short("probe.sh").removesuffix("put end\n") + _code("python.sh") + "put end\n"
    if not android:
        return text
    return _ANDROID_HOME + text.removesuffix("put end\n") + _short("android.sh") + "put end\n"


def _short(name: str) -> str:
    """Return a script without the parts between the marks."""
    kept, rest = "", text_of(name)
    while _ALL in rest:
        before, _, rest = rest.partition(_ALL)
        kept += before + "\n"
        rest = rest.partition(_END_OF_ALL)[2]
    return plain(kept + rest)


def _code(name: str) -> str:
    """Return a script without comments. Python in it keeps a quarter of its indentation."""
    return re.sub(r"(?m)^ +", lambda spaces: " " * (len(spaces[0]) // 4), plain(text_of(name)))


@cache
def _tables() -> Thread:
    thread = Thread(target=load, args=("socs",), daemon=True, name="fleet-tables")
    thread.start()
    return thread


def gather(transport: Transport, host: Host, deadline: Deadline, *, short: bool = False) -> Facts:
    """Return the facts of `host`. Raises a TransportError, or DeviceError for a truncated answer.

    `short` collects only the facts that a transfer needs, except on Windows; the others are
    unknown.
    """
    android = host.phone
    if transport.system == "windows":
        command = Command(("probe", host.base_dir), call=Call("probe", (host.base_dir,)))
    else:
        text = short_source(android=android) if short else source(android=android)
        command = script(text, host.base_dir)
    tables = _tables()  # loaded while the device answers
    result = transport.run(command, deadline)
    tables.join()
    return parse(result.text, host, complaint=result.error_text)


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
