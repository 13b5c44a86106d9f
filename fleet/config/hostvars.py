"""The keys of a host in an inventory: what each may hold, in words, in code and in JSON Schema.

`HOST_KEYS` is the one place for all three. Nothing here needs pydantic: every command reads an
inventory, and pydantic with a model of it takes 0.1 s of each start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fleet.config.problems import Problems
from fleet.config.values import (
    DURATION_SCHEMA,
    FILE_PATH,
    TARGET,
    Pattern,
    no_template,
    no_word,
    seconds_of,
    unlike,
)
from fleet.config.yamlpos import Document, Keys, Vault
from fleet.model.errors import InputError
from fleet.model.secret import SecretRef

SECTIONS = {
    "hosts": "Host names → their keys. A name may hold ranges: evk[01:30], evk[a:f].",
    "children": "Groups inside this one; empty when they are defined elsewhere.",
    "vars": "Keys for all hosts of the group.",
}
PRIORITY = "ansible_group_priority"
WHOLE_NUMBER = "a whole number"
_MAX_PORT = 65535
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")  # of Windows
_TEXT = {"type": "string"}


@dataclass(frozen=True)
class ValuePlace:
    """Where a value stands, and who is told what is wrong with it."""

    document: Document
    problems: Problems
    path: Keys

    def below(self, part: str | int) -> ValuePlace:
        """Of an item of this mapping or list."""
        return ValuePlace(self.document, self.problems, (*self.path, part))

    def wrong(self, message: str, hint: str = "") -> object:
        """Report it; what is returned is None."""
        self.problems.add(message, self.document.value(self.path), hint)
        return None

    def unlike(self, value: object, wanted: str) -> object:
        """Report a value of another kind than `wanted` (`text`, `a list`, ...)."""
        text = self.document.text(self.path)
        return self.wrong(*unlike(str(self.path[-1]), value, wanted, text))


Taker = Callable[[ValuePlace, object], object]  # the value as a host has it; None: it is reported


@dataclass(frozen=True)
class HostKey:
    """One key. `schema` is its JSON Schema without null, which unsets any key."""

    description: str
    schema: Mapping[str, Any]
    take: Taker


def _text(check: Callable[[str], str]) -> Taker:
    def take(place: ValuePlace, value: object) -> object:
        if not isinstance(value, str):
            return place.unlike(value, "text")
        try:
            return check(value)
        except InputError as error:
            return place.wrong(error.message, error.hint)

    return take


def key_of(
    description: str, pattern: str | Pattern, what: str = "", hint: str = "", *, shown: bool = True
) -> HostKey:
    """A key that holds text of this pattern."""
    rule = Pattern(pattern, what, hint, shown) if isinstance(pattern, str) else pattern
    return HostKey(description, rule.schema, _text(rule.check))


def _secret(description: str) -> HostKey:
    key = key_of(
        f"{description} by reference: env:NAME, file:PATH or cmd:PROGRAM.",
        r"(env:[A-Za-z_][A-Za-z0-9_]*|file:[^\x00-\x1f]+|cmd:[^\x00-\x1f]+)",
        "reference to a secret (the file must not contain the secret itself)",
        "write env:NAME, file:PATH or cmd:PROGRAM ARGS",
        shown=False,
    )

    def take(place: ValuePlace, value: object) -> object:
        reference, at = key.take(place, value), place.document.value(place.path)
        folder = place.document.file.absolute().parent
        return reference and SecretRef(str(reference), folder, position=at)

    return replace(key, take=take)


def _word(description: str, *words: str) -> HostKey:
    def take(place: ValuePlace, value: object) -> object:
        if not isinstance(value, str):
            return place.unlike(value, "text")
        if value in words:
            return value
        return place.wrong(*no_word(str(place.path[-1]), value, words))

    return HostKey(description, {"type": "string", "enum": list(words)}, take)


def whole_number(most: int, hint: str = "") -> Taker:
    """Takes 1 to `most`."""

    def take(place: ValuePlace, value: object) -> object:
        if type(value) is not int:
            return place.unlike(value, WHOLE_NUMBER)
        if 1 <= value <= most:
            return value
        limit = "at least 1" if value < 1 else f"at most {most}"
        return place.wrong(f"'{place.path[-1]}' must be {limit}, not {value}", hint)

    return take


def _duration(place: ValuePlace, value: object) -> object:
    if isinstance(value, Vault):
        return place.unlike(value, "a duration")
    try:
        return seconds_of(value)
    except InputError as error:
        return place.wrong(error.message, error.hint)


def _paths(place: ValuePlace, value: object) -> object:
    if not isinstance(value, str | list):
        return place.unlike(value, "a list")
    if isinstance(value, str):
        return None if (path := _path(place, value)) is None else [path]
    paths = [_path(place.below(number), path) for number, path in enumerate(value)]
    return None if None in paths else paths


def _labels(place: ValuePlace, value: object) -> object:
    if not isinstance(value, dict):
        return place.unlike(value, "a mapping")
    labels = {name: _label(place.below(name), text) for name, text in value.items()}
    return None if None in labels.values() else labels


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


_label = _text(no_template)
_path = _text(FILE_PATH.check)
_BASE_DIR_SCHEMA = {
    "type": "string",
    "pattern": r"^(~/|/|[A-Za-z]:[\\/])[^\u0000-\u001f]*[^\u0000-\u001f/]/*$",
    "not": {"pattern": r"(^|/)\.\.(/|$)"},
}
_PATHS_SCHEMA = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_IDENTIFIER = Pattern(r"[^\s\x00-\x1f]+", "identifier", "write the value without spaces")

# An address, a user and a jump host have no space and no leading dash: OpenSSH would take it
# for an option.
HOST_KEYS: Mapping[str, HostKey] = {
    "transport": _word(
        "How the device is reached: ssh (default), local (this machine) or adb.",
        *("ssh", "local", "adb"),
    ),
    "host": key_of(
        "Address or alias of the ssh config. Default: the name of the host in this file.",
        r"[^\s\x00-\x1f,/@*?!-][^\s\x00-\x1f,/@*?!]*",
        "address",
        "write a name or an IP address, without * ? !",
    ),
    "port": HostKey(
        "SSH port. Default: the port of the ssh config, else 22.",
        {"type": "integer", "minimum": 1, "maximum": _MAX_PORT},
        whole_number(_MAX_PORT, "write the TCP port of the SSH server, like 22"),
    ),
    "user": key_of(
        "Login name. Default: the user of the ssh config, else your own name.",
        r"[^\s\x00-\x1f:@/-][^\s\x00-\x1f:@/]*",
        "user name",
        "write the login name only, without @ and address",
    ),
    "identity_file": HostKey(
        "Private key or keys; relative to the inventory's folder.", _PATHS_SCHEMA, _paths
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
        DURATION_SCHEMA,
        _duration,
    ),
    "base_dir": HostKey(
        "Folder of fleet on the device: absolute or ~/... Default ~/fleet.",
        _BASE_DIR_SCHEMA,
        _text(_base_dir),
    ),
    "soc": key_of(
        "Chip name (QCS9075), for a device that does not report its chip.",
        r"[A-Z]{2,4}[0-9]{3,5}[A-Z]{0,3}",
        "chip name",
        "write the chip, not the board, in capitals without a dash: QCS9075, SM8750",
    ),
    "os": _word(
        "linux or windows. Default: fleet derives it from the name of the ssh server.",
        *("linux", "windows"),
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
    "labels": HostKey(
        "Labels of your choice, as NAME: VALUE; a host also gets the labels of its groups.",
        {"type": "object", "additionalProperties": _TEXT},
        _labels,
    ),
}


def inventory_schema() -> dict[str, Any]:
    """The JSON Schema of an inventory of fleet's own, without dialect and title."""
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
