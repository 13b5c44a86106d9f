"""Why a device was not reached, in the words that the causes ask for."""

from __future__ import annotations

from fleet.model.diagnosis import BAD, UNKNOWN, Check
from fleet.model.errors import (
    AuthError,
    DeadlineError,
    FleetError,
    HostKeyError,
    TransportError,
    UnreachableError,
)
from fleet.model.inventory import Host

_ADB = {
    "unauthorized": "adb-unauthorized",
    "no permissions": "adb-no-permissions",
    "offline": "adb-offline",
    "missing": "adb-missing",
}


def link_check(host: Host, error: FleetError | None) -> Check:
    """A check of the layer `link` (bad), or an unknown one for what is no matter of the link."""
    text = error.message if error else "no answer"
    output = f"{text}; try: {error.hint}" if error and error.hint else text
    if not isinstance(error, TransportError):
        return Check("link", "link", UNKNOWN, text, {}, "", output)
    return Check("link", "link", BAD, text, {"link": _word(error)}, _command(host), output)


def _word(error: TransportError) -> str:
    if error.adb_state in _ADB:
        return _ADB[error.adb_state]
    kinds: tuple[tuple[type[TransportError], str], ...] = (
        (HostKeyError, "host-key"),
        (AuthError, "auth"),
        (DeadlineError, "timeout"),
        (UnreachableError, "unreachable"),
    )
    return next((word for kind, word in kinds if isinstance(error, kind)), "unreachable")


def _command(host: Host) -> str:
    return "adb devices -l" if host.phone else f"fleet trust {host.name}"
