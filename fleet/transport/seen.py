"""The devices that this workstation knows: hosts of an ssh config, phones of an adb server."""

from __future__ import annotations

from pathlib import Path

from fleet.config.ssh_files import expanded, named_hosts
from fleet.model.deadline import Deadline
from fleet.model.errors import InputError, TransportError, reason

ADB_SECONDS = 1.0  # the server is on loopback, or does not run
USER_CONFIG = Path("~/.ssh/config")


def config_hosts(path: Path | None = None) -> list[str]:
    """Return each alias of an ssh config, and of the files that it includes, that is one host.

    Wildcards and negations are left out. Without `path`, read the user's own file; return [] if
    there is none. Raises InputError for a file that cannot be read.
    """
    source = path or USER_CONFIG.expanduser()
    if not source.is_file():
        if path is not None:
            raise InputError(f"the ssh config {path} does not exist", hint=f"ls {path.parent}")
        return []
    try:
        return sorted(named_hosts(expanded(source)))
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read the ssh config {source}: {reason(error)}",
            hint="give addresses instead: fleet init FOLDER [user@]host[:port] ...",
        ) from error


def adb_devices(where: str | None = None) -> list[tuple[str, str, str]]:
    """Return (serial, state, model) of the phones of a running adb server, [] if none runs.

    The server is never started. A phone whose serial number is not unique is named by its USB path.
    """
    from fleet.transport.adbserver import AdbServer  # noqa: PLC0415 - only for phones

    try:
        rows = AdbServer(where, may_start=False).devices(Deadline(ADB_SECONDS))
    except (TransportError, InputError):
        return []
    serials = [row.serial for row in rows]
    return [
        (
            row.path if serials.count(row.serial) > 1 and row.path else row.serial,
            row.state,
            row.model,
        )
        for row in rows
    ]
