"""The choice of a phone in `adb devices`, and the meaning and cure of its state."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fleet.model.errors import AuthError, IdentityError, TransportError, UnreachableError
from fleet.transport.adbserver import AdbDevice

_TARGET = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+):(\d{1,5})")

_ACCEPT = (
    "unlock the phone and accept `Allow USB debugging?`; if the phone does not ask, revoke the "
    "USB debugging authorisations in Developer options and plug the phone in again"
)
# state → (kind of error, meaning, cure). The states are those of adb: packages/modules/adb types.h,
# ConnectionState.
_STATES: dict[str, tuple[type[TransportError], str, str]] = {
    "unauthorized": (AuthError, "you have not yet allowed this workstation on the phone", _ACCEPT),
    "authorizing": (
        AuthError,
        "the phone is waiting for your permission",
        ("unlock the phone and accept `Allow USB debugging?`"),
    ),
    "offline": (
        UnreachableError,
        "the adb server knows the phone, but the phone does not answer",
        (
            "wake the phone or plug it in again; over Wi-Fi: adb disconnect, then adb connect "
            "HOST:PORT"
        ),
    ),
    "connecting": (UnreachableError, "adb is still connecting", "wait, then run the command again"),
    "no permissions": (
        AuthError,
        "your user has no permission for the USB device",
        "sudo apt-get install android-sdk-platform-tools-common; sudo usermod -aG plugdev $USER",
    ),
    "recovery": (UnreachableError, "the phone is in recovery mode", "boot Android: adb reboot"),
    "rescue": (UnreachableError, "the phone is in rescue mode", "boot Android: adb reboot"),
    "sideload": (UnreachableError, "the phone is in sideload mode", "boot Android: adb reboot"),
    "bootloader": (UnreachableError, "the phone is in its boot loader", "fastboot reboot"),
    "host": (
        UnreachableError,
        "this serial number belongs to a computer, not to a phone",
        "correct `serial:` in the inventory",
    ),
}


def is_target(serial: str) -> bool:
    """Return True for HOST:PORT, which `adb connect` accepts. `usb:1-4` is a path."""
    match = _TARGET.fullmatch(serial)
    return match is not None and match[1] != "usb"


def find(devices: Sequence[AdbDevice], wanted: str, device: str) -> AdbDevice | None:
    """Return the row with that serial number or USB path (`usb:1-4.2`), None if it is missing.

    Raises IdentityError if several phones match, because cheap phones share a serial number.
    """
    matches = [device for device in devices if wanted in {device.serial, device.path}]
    if len(matches) > 1:
        paths = ", ".join(device.path or f"transport {device.transport}" for device in matches)
        raise IdentityError(
            f"{len(matches)} devices have the serial number {wanted}: {paths}",
            device=device,
            step="identity",
            hint="write the USB path of one device in the inventory: serial: "
            f"{matches[0].path or 'usb:...'}",
        )
    return matches[0] if matches else None


_GONE = "check power and cable or Wi-Fi of the phone, until it is listed by: adb devices -l"


def unanswered(wanted: str, answer: str, device: str, *, again: bool = False) -> UnreachableError:
    """Return the error for HOST:PORT that cannot be connected. `again`: it was a moment ago."""
    if again:
        text = f"the phone {wanted} disconnected; adb connect says: {answer}"
        return UnreachableError(text, device=device, hint=_GONE)
    return UnreachableError(
        f"adb cannot connect to {wanted}: {answer}",
        device=device,
        hint="plug in the USB cable and let the phone listen: adb tcpip 5555",
    )


def absent(
    devices: Sequence[AdbDevice], wanted: str, device: str, *, again: bool = False
) -> UnreachableError:
    """Return the error for a phone that the server does not list. `again`: it did a moment ago."""
    have = ", ".join(f"{device.serial} ({device.state})" for device in devices) or "none"
    unknown = [device for device in devices if device.state == "no permissions"]
    cure = _STATES["no permissions"][2] if unknown else "plug the phone in, enable USB debugging"
    if again and not unknown:
        text = f"the phone {wanted} disconnected; adb now sees: {have}"
        return UnreachableError(text, device=device, hint=_GONE)
    error = UnreachableError(
        f"adb does not see the phone {wanted}; adb sees: {have}",
        device=device,
        hint=f"{cure}; adb devices -l",
    )
    error.adb_state = "no permissions" if unknown else ""
    return error


def check_state(phone: AdbDevice, device: str) -> None:
    """Raise the error for every state except `device`, with its cure."""
    if phone.state == "device":
        return
    kind, meaning, cure = _STATES.get(
        phone.state, (UnreachableError, "fleet does not know this state", "adb devices -l")
    )
    more = f" ({phone.why})" if phone.why else ""
    error = kind(
        f"adb reports {phone.serial} as '{phone.state}'{more}: {meaning}", device=device, hint=cure
    )
    error.adb_state = phone.state
    raise error
