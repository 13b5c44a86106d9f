"""The adb server on this workstation: its address, its devices and its answers.

Protocol: packages/modules/adb/SERVICES.TXT of AOSP. fleet starts a server if none runs. fleet never
stops a server, because its other users would lose their phones.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleet.model.deadline import Deadline
from fleet.model.errors import (
    AuthError,
    DeadlineError,
    FleetError,
    IdentityError,
    InputError,
    TransportError,
    UnreachableError,
    reason,
)
from fleet.model.extras import install_extra
from fleet.model.inventory import ADB
from fleet.transport.adbwire import AdbConnection, RefusedError

PROGRAM = ADB.name
DEFAULT = ("127.0.0.1", 5037)
START_SECONDS = 20.0  # the first start generates a key and scans for USB devices
_ADDRESS = re.compile(r"(?:tcp:)?(?:([^:\s]+):)?(\d{1,5})")
_VERSION = re.compile(r"version \d+\.\d+\.(\d+)")


@dataclass(frozen=True)
class AdbDevice:
    """A row of `adb devices -l`. `path` is the USB path (`usb:1-4.2`), "" over TCP.

    `state` is the server's own word (device, offline, unauthorized, recovery, ...) or `no
    permissions`; `why` is the server's explanation. `transport` is a number that changes with every
    reconnection, 0 if an old server gives none.
    """

    serial: str
    state: str
    path: str = ""
    model: str = ""
    transport: int = 0
    why: str = ""


def address(text: str | None = None) -> tuple[str, int]:
    """Return host and port of the server: the inventory's, or those that the adb program would use.

    The order of adb is ADB_SERVER_SOCKET (tcp:HOST:PORT), then ANDROID_ADB_SERVER_ADDRESS and
    _PORT, then 127.0.0.1:5037. Raises InputError for text that is not an address.
    """
    place = text or os.environ.get("ADB_SERVER_SOCKET", "")
    if place:
        match = _ADDRESS.fullmatch(place)
        if match is None:
            raise InputError(
                f"'{place}' is not the address of an adb server", hint="write HOST:PORT"
            )
        return match[1] or DEFAULT[0], int(match[2])
    port = os.environ.get("ANDROID_ADB_SERVER_PORT", "")
    host = os.environ.get("ANDROID_ADB_SERVER_ADDRESS", "") or DEFAULT[0]
    return host, int(port) if port.isascii() and port.isdigit() else DEFAULT[1]


def program() -> str:
    """Return the path of adb: the user's own, so that versions match, or that of the extra `adb`.

    Raises InputError if there is none.
    """
    own = shutil.which(PROGRAM)
    if own:
        return own
    try:
        from adbutils import adb_path  # noqa: PLC0415 - 0.15 s
    except ImportError as error:
        raise InputError(
            "there is no adb on the PATH",
            hint=f"sudo apt-get install adb (or {install_extra('adb')}), then: adb devices",
        ) from error
    return str(adb_path())


class AdbServer:
    """A client of one adb server. Every call opens its own connection."""

    def __init__(self, where: str | None = None, *, may_start: bool = True) -> None:
        self.host, self.port = address(where)
        self._may_start = may_start and not where

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def near(self) -> bool:
        """True if the server runs on this machine."""
        return self.host in {"127.0.0.1", "localhost", "::1"}

    def connect(self, deadline: Deadline) -> AdbConnection:
        """Connect to the server. Start the server first if it is the default one and does not run.

        Raises UnreachableError or DeadlineError.
        """
        deadline.check("connecting to the adb server")
        try:
            return AdbConnection(self.host, self.port, deadline.remaining)
        except OSError as error:
            self._start(deadline, error)
        with translated(self, deadline):
            return AdbConnection(self.host, self.port, max(deadline.remaining, 0.01))
        raise AssertionError

    def _start(self, deadline: Deadline, why: OSError) -> None:
        if not self._may_start or not self.near:
            error = UnreachableError(
                f"no adb server answers at {self} ({why.strerror or why})",
                hint="start it with adb start-server, or correct `adb_server:` in the inventory",
            )
            error.adb_state = "missing"
            raise error from why
        env = {**os.environ, "ANDROID_ADB_SERVER_PORT": str(self.port)}
        env.pop("ADB_SERVER_SOCKET", None)
        answer = ""
        try:
            done = subprocess.run(
                [program(), "start-server"],
                env=env,
                capture_output=True,
                text=True,
                check=False,
                timeout=min(deadline.remaining + 1, START_SECONDS),
            )
            if done.returncode == 0:
                return
            answer = done.stderr.strip()[-200:]
        except (OSError, subprocess.SubprocessError, InputError) as failed:
            answer = str(failed)
        error = UnreachableError(
            f"no adb server answers at {self}, and `adb start-server` failed: {answer or why}",
            hint=f"sudo apt-get install adb (or {install_extra('adb')}), then: adb devices",
        )
        error.adb_state = "missing"
        raise error from why

    def ask(self, service: str, deadline: Deadline) -> str:
        """Return the answer of a host service such as `host:version`. Raises a TransportError."""
        with translated(self, deadline), contextlib.closing(self.connect(deadline)) as link:
            link.ask(service)
            link.check()
            return link.block()
        raise AssertionError

    def version(self, deadline: Deadline) -> int:
        """Return the protocol version: 41 for every server since platform tools 29, 0 if
        unreadable.
        """
        text = self.ask("host:version", deadline)
        with contextlib.suppress(ValueError):
            return int(text, 16)
        return 0

    def devices(self, deadline: Deadline) -> list[AdbDevice]:
        """Return all devices that the server lists, in its order."""
        text = self.ask("host:devices-l", deadline)
        return [parse_row(line) for line in text.splitlines() if line.strip()]

    def dial(self, target: str, deadline: Deadline) -> str:
        """Run `adb connect HOST:PORT`. Return the server's text, which also reports failures."""
        return self.ask(f"host:connect:{target}", deadline)

    def hang_up(self, target: str, deadline: Deadline) -> None:
        """Run `adb disconnect HOST:PORT`, for a dead connection that the server still lists."""
        with contextlib.suppress(FleetError):
            self.ask(f"host:disconnect:{target}", deadline)

    def pair(self, target: str, code: str, deadline: Deadline) -> str:
        """Run `adb pair HOST:PORT CODE` and return its text. Raises InputError for a bad code."""
        if not re.fullmatch(r"[0-9]{6}", code):
            raise InputError(
                "the pairing code must have six digits",
                hint="type the code that the phone shows under Developer options, Wireless "
                "debugging, Pair device with pairing code",
            )
        return self.ask(f"host:pair:{code}:{target}", deadline)


def parse_row(line: str) -> AdbDevice:
    """Parse one line of `host:devices-l`.

    `SERIAL  device usb:1-4.2 product:p model:M device:d transport_id:3`, or `???????  no
    permissions (user in plugdev group; ...); see [http...] usb:1-4 ...`.
    """
    serial, rest = [*line.split(maxsplit=1), "", ""][:2]
    words = rest.split()
    tags = dict(re.findall(r"(?:^|\s)(product|model|device|transport_id):(\S*)", rest))
    path = next((word for word in words if word.startswith("usb:")), "")
    state = "no permissions" if rest.startswith("no permissions") else (words or ["unknown"])[0]
    why = rest.partition("(")[2].partition(")")[0] if state == "no permissions" else ""
    number = tags.get("transport_id", "")
    return AdbDevice(
        serial,
        state,
        path,
        tags.get("model", ""),
        int(number) if number.isascii() and number.isdigit() else 0,
        why,
    )


def rivals() -> list[str]:
    """Return `PATH (version)` of all adb programs on PATH, [] unless their protocol versions
    differ.

    A program of another version ends the running server before it does anything else.
    """
    programs: dict[str, str] = {}
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = shutil.which(PROGRAM, path=folder)
        if path and path not in programs:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                text = subprocess.run(
                    [path, "version"], capture_output=True, text=True, check=False, timeout=5
                ).stdout
                match = _VERSION.search(text)
                programs[path] = match[1] if match else "unknown"
    versions = set(programs.values())
    return [f"{path} ({v})" for path, v in programs.items()] if len(versions) > 1 else []


@contextlib.contextmanager
def translated(server: AdbServer, deadline: Deadline, phone: str = "") -> Iterator[None]:
    """Turn errors of the connection to the server into DeadlineError or UnreachableError.

    `phone` is named on a timeout.
    """
    try:
        yield
    except TimeoutError as error:
        who = f"the phone {phone}" if phone else f"the adb server at {server}"
        cure = "check cable or Wi-Fi of the phone: adb devices -l" if phone else "adb start-server"
        raise DeadlineError(
            f"{who} did not answer within {deadline.waited} s", hint=cure
        ) from error
    except (RefusedError, OSError, EOFError, ValueError) as error:
        text = " ".join(reason(error).split())
        if type(error) is ValueError:
            text = "the answer is not valid adb protocol; another program may be using that port"
        raise UnreachableError(
            f"the adb server at {server} failed: {text}",
            hint="adb devices -l (shows whether adb works); if not, correct `adb_server:` in the "
            "inventory",
        ) from error


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
