"""The hosts of an inventory, after groups, children and vars were merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fleet.model.secret import SecretRef

DEFAULT_CONNECT_SECONDS = 15.0  # a board behind two jump hosts needs 3 s; after 15 s it is absent


@dataclass(frozen=True)
class TransportKind:
    """A kind of connection, named by `transport:` in an inventory.

    `opener` is its class as `module:name`, called with `(host, *, accept_new, again)`. `phone` is
    True for an Android device behind an adb server, which has a serial number instead of an
    address. `ansible` are the equivalent connection plugins of Ansible. `scripting` is the function
    of fleet's API that returns its connection.
    """

    name: str
    about: str
    opener: str
    phone: bool = False
    ansible: tuple[str, ...] = ()
    scripting: str = ""


SSH = TransportKind(
    "ssh", "ssh (default)", "fleet.transport.ssh:SshTransport",
    ansible=("ssh", "paramiko", "paramiko_ssh", "smart"), scripting="connection",
)  # fmt: skip
LOCAL = TransportKind(
    "local", "local (this machine)", "fleet.transport.local:LocalTransport", ansible=("local",)
)
ADB = TransportKind(
    "adb", "adb", "fleet.transport.adb:AdbTransport",
    phone=True, ansible=("adb",), scripting="adb_device",
)  # fmt: skip
TRANSPORTS = {kind.name: kind for kind in (SSH, LOCAL, ADB)}


@dataclass(frozen=True)
class Host:
    """A device of the inventory.

    `address` is passed to ssh (an alias of an ssh config works). Unset values (None, "") are left
    to the ssh configuration. `identity_files` are private keys, `key_passphrase` opens the
    encrypted ones. `known_hosts` is fleet's own file (only `fleet trust` writes it). `host_key`
    pins one fingerprint (`SHA256:...`). `base_dir` "" means ~/fleet on the device.

    `soc` names the chip (`QCS9075`) if the device does not report it. `serial` is the adb serial
    number, a USB path (`usb:1-4.2`), or HOST:PORT. `adb_server` is HOST:PORT of a server other than
    adb's default. `os` is linux or windows, if the ssh server does not show it. `identity` is the
    required identity of the device. `until` is the end of the session of a board by the hour, in
    seconds since 1970.
    """

    name: str
    transport: str = "ssh"
    address: str = ""
    port: int | None = None
    user: str | None = None
    identity_files: tuple[Path, ...] = ()
    password: SecretRef | None = None
    become_password: SecretRef | None = None
    proxy_jump: str | None = None
    ssh_config: Path | None = None
    known_hosts: Path = Path("known_hosts")
    host_key: str | None = None
    connect_timeout: float = DEFAULT_CONNECT_SECONDS
    base_dir: str = ""
    soc: str | None = None
    target: str | None = None
    serial: str | None = None
    identity: str | None = None
    groups: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    key_passphrase: SecretRef | None = None
    adb_server: str | None = None
    os: str | None = None
    until: float | None = None

    @property
    def phone(self) -> bool:
        """True for an Android device behind an adb server."""
        kind = TRANSPORTS.get(self.transport)
        return kind is not None and kind.phone


@dataclass(frozen=True)
class Inventory:
    """The hosts of one file, in its order. `groups` maps group → host names.

    `left_out` maps a host that fleet cannot connect to → the reason; such a host is in no group.
    """

    path: Path
    hosts: tuple[Host, ...]
    groups: Mapping[str, tuple[str, ...]]
    warnings: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
