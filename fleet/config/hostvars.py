"""The shape of an inventory file: the keys of a host, of a group, of the file."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, RootModel, WithJsonSchema

from fleet.config.fields import Duration, FilePath, FilePaths, Matches, Strict, no_template, wrong
from fleet.config.hostkeys import (
    ADB_SERVER,
    ADDRESS,
    HOST_KEY,
    JUMP,
    MAX_PORT,
    PLAIN,
    REFERENCE,
    SOC,
    TARGET,
    USER,
)

Address = Annotated[
    str,
    Matches(ADDRESS, "address", "write a name or an IP address"),
]
User = Annotated[str, Matches(USER, "user name", "write the login name only")]
Jump = Annotated[
    str,
    Matches(
        JUMP,
        "jump host",
        "write [user@]host[:port], several with a comma and no space",
    ),
]
Reference = Annotated[
    str,
    Matches(
        REFERENCE,
        "reference to a secret, and a secret never stands in the file itself",
        "write env:NAME, file:PATH or cmd:PROGRAM ARGS",
        shown=False,
    ),
]
HostKey = Annotated[
    str,
    Matches(
        HOST_KEY,
        "fingerprint of a host key",
        "write SHA256:... as `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` prints it",
    ),
]
Soc = Annotated[
    str,
    Matches(
        SOC,
        "chip name",
        "write the chip, not the board, in capitals without a dash: QCS9075, SM8750",
    ),
]
Target = Annotated[
    str,
    Matches(
        TARGET,
        "QAIRT target name",
        "write it like aarch64-oe-linux-gcc11.2, aarch64-android or x86_64-linux-clang",
    ),
]
Plain = Annotated[str, Matches(PLAIN, "identifier", "write it without spaces")]
AdbServer = Annotated[
    str,
    Matches(
        ADB_SERVER,
        "address of an adb server",
        "write HOST:PORT, like 127.0.0.1:5037",
    ),
]
Text = Annotated[str, AfterValidator(no_template)]


_DRIVE = re.compile(r"[A-Za-z]:[\\/]")  # of Windows


def _base_dir(value: str) -> str:
    no_template(value)
    value = value.replace("\\", "/") if _DRIVE.match(value) else value
    parts = value.split("/")
    rooted = value.startswith(("/", "~/")) or _DRIVE.match(value)
    if not rooted or ".." in parts or any(ord(c) < 32 for c in value):
        raise wrong(
            f"'{value}' is no base folder",
            "write an absolute path or one that starts with ~/, without ..",
        )
    if not _DRIVE.sub("", value).strip("~/"):
        raise wrong(
            f"'{value}' would fill the folder itself", "name a folder of its own, like ~/fleet"
        )
    return value.rstrip("/")


BaseDir = Annotated[
    str,
    AfterValidator(_base_dir),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^(~/|/|[A-Za-z]:[\\/])[^\u0000-\u001f]*[^\u0000-\u001f/]/*$",
            "not": {"pattern": r"(^|/)\.\.(/|$)"},
        }
    ),
]


class HostVars(Strict):
    """What is known of a host; the same keys stand in `vars` of a group. null unsets a key."""

    transport: Literal["ssh", "local", "adb"] | None = Field(
        default=None,
        description="How the device is reached: ssh (default), local (this machine) or adb.",
    )
    host: Address | None = Field(
        default=None,
        description="Address or ssh config alias; without it the host's name in this file.",
    )
    port: Annotated[int, Field(ge=1, le=MAX_PORT)] | None = Field(
        default=None,
        description="SSH port; without it the ssh config decides, then 22.",
    )
    user: User | None = Field(
        default=None,
        description="Login name; without it the ssh config decides, then your own.",
    )
    identity_file: FilePaths | None = Field(
        default=None,
        description="Private key or keys; relative to the inventory's folder.",
    )
    key_passphrase: Reference | None = Field(
        default=None,
        description="Passphrase of the key by reference: env:NAME, file:PATH or cmd:PROGRAM.",
    )
    password: Reference | None = Field(
        default=None,
        description="Login password by reference: env:NAME, file:PATH or cmd:PROGRAM.",
    )
    become_password: Reference | None = Field(
        default=None,
        description="sudo password by reference: env:NAME, file:PATH or cmd:PROGRAM.",
    )
    proxy_jump: Jump | None = Field(
        default=None,
        description="Jump hosts: [user@]host[:port], several separated by commas.",
    )
    ssh_config: FilePath | None = Field(
        default=None,
        description="An OpenSSH client configuration to use instead of ~/.ssh/config.",
    )
    known_hosts: FilePath | None = Field(
        default=None,
        description="fleet's own file of trusted host keys; default: <inventory>.known_hosts.",
    )
    host_key: HostKey | None = Field(
        default=None,
        description="The one accepted host key, as fingerprint SHA256:...",
    )
    connect_timeout: Duration | None = Field(
        default=None,
        description="Longest time to connect: seconds, or 500ms, 15s, 2m. Default 15 s.",
    )
    base_dir: BaseDir | None = Field(
        default=None,
        description="Folder of fleet on the device: absolute or ~/... Default ~/fleet.",
    )
    soc: Soc | None = Field(
        default=None,
        description="Chip name (QCS9075) where the device cannot be asked for it.",
    )
    os: Literal["linux", "windows"] | None = Field(
        default=None,
        description="linux or windows; without it the ssh server of Windows tells by its name.",
    )
    target: Target | None = Field(
        default=None,
        description="QAIRT target (aarch64-oe-linux-gcc11.2) instead of the detected one.",
    )
    serial: Plain | None = Field(
        default=None,
        description="adb: serial number, USB path (usb:1-4.2) or HOST:PORT; "
        "without it the host's name.",
    )
    adb_server: AdbServer | None = Field(
        default=None,
        description="adb: HOST:PORT of the server; without it the one that adb itself uses.",
    )
    identity: Plain | None = Field(
        default=None,
        description="What the device must answer as its identity, else it is refused.",
    )
    labels: dict[str, Text] | None = Field(
        default=None,
        description="Free labels (text: text); those of groups and host are joined.",
    )


class GroupVars(HostVars):
    """Variables of all hosts of a group."""

    ansible_group_priority: int | None = Field(
        default=None,
        description="Among groups of one depth the higher number wins (as in Ansible).",
    )


class GroupBody(Strict):
    """A group: its hosts, its child groups, and variables for all of them."""

    hosts: dict[str, HostVars | None] | None = Field(
        default=None,
        description="Host names → their keys. A name may hold ranges: evk[01:30], evk[a:f].",
    )
    children: dict[str, GroupBody | None] | None = Field(
        default=None,
        description="Groups inside this one; empty when they are defined elsewhere.",
    )
    vars: GroupVars | None = Field(default=None, description="Keys for all hosts of the group.")


class InventoryFile(RootModel[dict[str, GroupBody | None]]):
    """A fleet inventory: group names → groups."""
