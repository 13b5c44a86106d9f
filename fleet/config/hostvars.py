"""The keys of a host in an inventory, each with its description and its type.

`HOST_KEYS` is the single source of both: the walker of `shape` reads values by it, and the JSON
Schema is generated from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from fleet.config.problems import Problems
from fleet.config.shape import BAD, Walker, key_name, unwrapped, value_schema
from fleet.config.values import (
    FILE_PATH,
    TARGET,
    After,
    Before,
    Duration,
    FilePath,
    Pattern,
    Range,
    Schema,
    no_template,
    unlike,
)
from fleet.config.yamlpos import Document, Keys
from fleet.model.errors import InputError
from fleet.model.inventory import TRANSPORTS
from fleet.model.secret import SecretRef

SECTIONS = {
    "hosts": "Host names → their keys. A name may hold ranges: evk[01:30], evk[a:f].",
    "children": "Groups inside this one; empty when they are defined elsewhere.",
    "vars": "Keys for all hosts of the group.",
}
PRIORITY = "ansible_group_priority"
WHOLE_NUMBER = "a whole number"
_MAX_PORT = 65535
_INSTANT = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")  # of Windows
REFERENCE = "reference"  # a mark: the reader converts the text to a SecretRef


@dataclass(frozen=True)
class ValuePlace:
    """The position of a value, and the collector of its errors."""

    document: Document
    problems: Problems
    path: Keys

    def below(self, part: str | int) -> ValuePlace:
        """Return the place of an item of this mapping or list."""
        return ValuePlace(self.document, self.problems, (*self.path, part))

    def wrong(self, message: str, hint: str = "") -> object:
        """Report an error of the value, and return None."""
        self.problems.add(message, self.document.value(self.path), hint)
        return None

    def unlike(self, value: object, wanted: str) -> object:
        """Report a value of another kind than `wanted` (`text`, `a list`, ...), and return None."""
        text = self.document.text(self.path)
        return self.wrong(*unlike(key_name(self.path), value, wanted, text))


@dataclass(frozen=True)
class HostKey:
    """A key of a host: its description, and its type as `shape` reads it."""

    description: str
    type: Any

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the key, without null, which unsets any key."""
        return value_schema(self.type, {})

    def take(self, place: ValuePlace, value: object) -> object:
        """Return the converted value, or None after reporting an error."""
        converted = Walker(place.document, place.problems).value(self.type, value, place.path)
        if converted is BAD:
            return None
        return (
            SecretRef(
                str(converted),
                place.document.file.absolute().parent,
                position=place.document.value(place.path),
            )
            if REFERENCE in unwrapped(self.type)[1]
            else converted
        )


def key_of(
    description: str, pattern: str | Pattern, what: str = "", hint: str = "", *, shown: bool = True
) -> HostKey:
    """Return a key for text that matches `pattern`; see Pattern for the other arguments."""
    rule = Pattern(pattern, what, hint, shown) if isinstance(pattern, str) else pattern
    return HostKey(description, Annotated[str, rule])


def _secret(description: str) -> HostKey:
    rule = Pattern(
        r"(env:[A-Za-z_][A-Za-z0-9_]*|file:[^\x00-\x1f]+|cmd:[^\x00-\x1f]+)",
        "reference to a secret (the file must not contain the secret itself)",
        "write env:NAME, file:PATH or cmd:PROGRAM ARGS",
        shown=False,
    )
    text = f"{description} by reference: env:NAME, file:PATH or cmd:PROGRAM."
    return HostKey(text, Annotated[str, rule, REFERENCE])


def whole_number(most: int, hint: str = "") -> object:
    """Return the type of a number from 1 to `most`."""
    return Annotated[int, Range(1, most, hint)]


def _base_dir(value: str) -> str:
    no_template(value)
    value = value.replace("\\", "/") if _DRIVE.match(value) else value
    rooted = value.startswith(("/", "~/")) or _DRIVE.match(value)
    if not rooted or ".." in value.split("/") or any(ord(char) < 32 for char in value):
        raise InputError(
            f"'{value}' is not a valid path for base_dir",
            hint="write an absolute path or one that starts with ~/, without ..",
        )
    if not _DRIVE.sub("", value).strip("~/"):
        raise InputError(
            f"base_dir is '{value}', but fleet needs a folder of its own",
            hint="write a subfolder, like ~/fleet",
        )
    return value.rstrip("/")


def _instant(value: object) -> float:
    try:
        return datetime.strptime(str(value), "%Y-%m-%dT%H:%M:%S%z").timestamp()
    except ValueError as error:
        raise InputError(
            f"'{value}' is not a time in UTC", hint='write it like "2026-11-28T09:30:00Z"'
        ) from error


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


_BASE_DIR_SCHEMA = {
    "type": "string",
    "pattern": r"^(~/|/|[A-Za-z]:[\\/])[^\u0000-\u001f]*[^\u0000-\u001f/]/*$",
    "not": {"pattern": r"(^|/)\.\.(/|$)"},
}
_IDENTIFIER = Pattern(r"[^\s\x00-\x1f]+", "identifier", "write the value without spaces")

# An address, a user and a jump host have no space and no leading dash: OpenSSH would read
# a dash as an option.
_WAYS = " or ".join(", ".join(k.about for k in TRANSPORTS.values()).rsplit(", ", 1))
HOST_KEYS: Mapping[str, HostKey] = {
    "transport": HostKey(
        f"How the device is reached: {_WAYS}.",
        Literal[tuple(TRANSPORTS)],
    ),
    "host": key_of(
        "Address or alias of the ssh config. Default: the name of the host in this file.",
        r"[^\s\x00-\x1f,/@*?!-][^\s\x00-\x1f,/@*?!]*",
        "address",
        "write a name or an IP address, without * ? !",
    ),
    "port": HostKey(
        "SSH port. Default: the port of the ssh config, else 22.",
        whole_number(_MAX_PORT, "write the TCP port of the SSH server, like 22"),
    ),
    "user": key_of(
        "Login name. Default: the user of the ssh config, else your own name.",
        r"[^\s\x00-\x1f:@/-][^\s\x00-\x1f:@/]*",
        "user name",
        "write the login name only, without @ and address",
    ),
    "identity_file": HostKey(
        "Private key or keys; relative to the inventory's folder.",
        Annotated[FilePath | list[FilePath], After(_listed)],
    ),
    "key_passphrase": _secret("Passphrase of the key"),
    "password": _secret("Login password"),
    "become_password": _secret("sudo password"),
    "proxy_jump": key_of(
        "Jump hosts: [user@]host[:port], several separated by commas.",
        r"[^\s\x00-\x1f,/-][^\s\x00-\x1f,/]*(,[^\s\x00-\x1f,/-][^\s\x00-\x1f,/]*)*",
        "jump host",
        "write [user@]host[:port], several with a comma and no space",
    ),
    "ssh_config": key_of(
        "An OpenSSH client configuration to use instead of ~/.ssh/config.", FILE_PATH
    ),
    "known_hosts": key_of(
        "fleet's own file of trusted host keys; default: <inventory>.known_hosts.", FILE_PATH
    ),
    "host_key": key_of(
        "The only host key that is accepted, as fingerprint SHA256:...",
        r"SHA256:[A-Za-z0-9+/]{43}=?",
        "fingerprint of a host key",
        "write SHA256:... as `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` prints it",
    ),
    "connect_timeout": HostKey(
        "Longest time to connect: seconds, or 500ms, 15s, 2m. Default 15 s.",
        Duration,
    ),
    "base_dir": HostKey(
        "Folder of fleet on the device: absolute or ~/... Default ~/fleet.",
        Annotated[str, Schema(_BASE_DIR_SCHEMA), After(_base_dir)],
    ),
    "soc": key_of(
        "Chip name (QCS9075), for a device that does not report its chip.",
        r"[A-Z]{2,4}[0-9]{3,5}[A-Z]{0,3}",
        "chip name",
        "write the chip, not the board, in capitals without a dash: QCS9075, SM8750",
    ),
    "os": HostKey(
        "linux or windows. Default: fleet derives it from the name of the ssh server.",
        Literal["linux", "windows"],
    ),
    "target": key_of(
        "QAIRT target (aarch64-oe-linux-gcc11.2) instead of the detected one.", TARGET
    ),
    "serial": key_of(
        "adb: serial number, USB path (usb:1-4.2) or HOST:PORT. Default: the name of the host.",
        _IDENTIFIER,
    ),
    "adb_server": key_of(
        "adb: HOST:PORT of the adb server. Default: the server that adb uses.",
        r"[^\s\x00-\x1f,/@:-][^\s\x00-\x1f,/@:]*:\d{1,5}",
        "address of an adb server",
        "write HOST:PORT, like 127.0.0.1:5037",
    ),
    "identity": key_of(
        "Machine id or serial number of the device; fleet refuses any other device.", _IDENTIFIER
    ),
    "until": HostKey(
        "End of the session of a board by the hour, in UTC; nothing starts after it.",
        Annotated[float, Before(_instant), Schema({"type": "string", "pattern": _INSTANT})],
    ),
    "labels": HostKey(
        "Labels of your choice, as NAME: VALUE; a host also gets the labels of its groups.",
        dict[Any, Annotated[str, After(no_template)]],
    ),
}


def inventory_schema() -> dict[str, Any]:
    """Return the JSON Schema of an inventory in fleet's own format, without dialect and title."""
    host = {name: _nullable(key.description, key.schema) for name, key in HOST_KEYS.items()}
    group_vars = host | {
        PRIORITY: _nullable(
            "Among groups on the same level, the higher number wins (as in Ansible).",
            {"type": "integer"},
        )
    }
    parts: dict[str, dict[str, Any]] = {
        "hosts": {"type": "object", "additionalProperties": _reference("HostVars")},
        "children": {"type": "object", "additionalProperties": _reference("GroupBody")},
        "vars": {"$ref": "#/$defs/GroupVars"},
    }
    group = {name: _nullable(SECTIONS[name], part) for name, part in parts.items()}
    return {
        "$defs": {
            "HostVars": _mapping("Keys of a host. null removes an inherited value.", host),
            "GroupVars": _mapping("Variables of all hosts of a group.", group_vars),
            "GroupBody": _mapping(
                "A group: its hosts, its child groups, and variables for all of them.", group
            ),
        },
        "description": "A fleet inventory: group names → groups.",
        "type": "object",
        "additionalProperties": _reference("GroupBody"),
    }


def _mapping(description: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    fixed = {"type": "object", "additionalProperties": False}
    return {"description": description, **fixed, "properties": properties}


def _reference(name: str) -> dict[str, Any]:
    return {"anyOf": [{"$ref": f"#/$defs/{name}"}, {"type": "null"}]}


def _nullable(description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": description, "anyOf": [schema, {"type": "null"}]}
