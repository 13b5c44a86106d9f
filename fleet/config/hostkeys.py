"""The keys of a host, and their values where those are plainly right.

Every command reads an inventory, and pydantic takes 0.1 s to start. So what is beyond doubt is
taken here; all else, and all that is wrong, goes to `hostvars`, which has the last word. Both
read the patterns below; tests/config/test_hostkeys.py holds the two together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from fleet.model.deadline import parse_duration
from fleet.model.errors import InputError

UNSURE = object()  # ask hostvars
SECTIONS = ("hosts", "children", "vars")  # of a group
LONGEST_SECONDS = 7 * 24 * 3600.0  # a longer duration is a missing unit, or infinite
MAX_PORT = 65535

# No space, and no leading dash: OpenSSH would take it for an option.
ADDRESS = r"[^\s\x00-\x1f,/@-][^\s\x00-\x1f,/@]*"
USER = r"[^\s\x00-\x1f:@/-][^\s\x00-\x1f:@/]*"
JUMP = r"[^\s\x00-\x1f,/-][^\s\x00-\x1f,/]*(,[^\s\x00-\x1f,/-][^\s\x00-\x1f,/]*)*"
REFERENCE = r"(env:[A-Za-z_][A-Za-z0-9_]*|file:[^\x00-\x1f]+|cmd:[^\x00-\x1f]+)"
HOST_KEY = r"SHA256:[A-Za-z0-9+/]{43}=?"
SOC = r"[A-Z]{2,4}[0-9]{3,5}[A-Z]{0,3}"
TARGET = r"(aarch64|arm64x|x86_64|hexagon)-[a-z0-9][a-z0-9._-]*"
PLAIN = r"[^\s\x00-\x1f]+"
ADB_SERVER = r"[^\s\x00-\x1f,/@:-][^\s\x00-\x1f,/@:]*:\d{1,5}"
FILE_PATH = r"[^\x00-\x1f]+"
_BASE_DIR = r"(~/|/)([A-Za-z0-9_-][A-Za-z0-9._-]*/)*[A-Za-z0-9_-][A-Za-z0-9._-]*"  # the usual ones


def plain(name: str, value: object) -> object:
    """What a field of HostVars holds for this value, or UNSURE. null unsets a key."""
    taker = FIELDS.get(name)
    if taker is None:
        return UNSURE
    return None if value is None else taker(value)


def _literal(value: object) -> bool:
    """ASCII text that is no template."""
    return type(value) is str and value.isascii() and "{{" not in value and "{%" not in value


def _text(pattern: str) -> Callable[[object], object]:
    def take(value: object) -> object:
        right = _literal(value) and re.fullmatch(pattern, str(value))
        return value if right else UNSURE

    return take


def _one_of(*words: str) -> Callable[[object], object]:
    return lambda value: value if type(value) is str and value in words else UNSURE


def _port(value: object) -> object:
    return value if type(value) is int and 1 <= value <= MAX_PORT else UNSURE


def _paths(value: object) -> object:
    found = [value] if type(value) is str else value
    if type(found) is not list:
        return UNSURE
    return UNSURE if any(_path(one) is UNSURE for one in found) else list(found)


def _duration(value: object) -> object:
    if type(value) is str:
        try:
            value = parse_duration(value)
        except InputError:
            return UNSURE
    if isinstance(value, bool) or not isinstance(value, int | float):
        return UNSURE
    return float(value) if 0 < value <= LONGEST_SECONDS else UNSURE


def _labels(value: object) -> object:
    if type(value) is not dict:
        return UNSURE
    right = all(_literal(key) and _literal(text) for key, text in value.items())
    return dict(value) if right else UNSURE


_path = _text(FILE_PATH)

FIELDS: Mapping[str, Callable[[object], object]] = {
    "transport": _one_of("ssh", "local", "adb"),
    "host": _text(ADDRESS),
    "port": _port,
    "user": _text(USER),
    "identity_file": _paths,
    "key_passphrase": _text(REFERENCE),
    "password": _text(REFERENCE),
    "become_password": _text(REFERENCE),
    "proxy_jump": _text(JUMP),
    "ssh_config": _path,
    "known_hosts": _path,
    "host_key": _text(HOST_KEY),
    "connect_timeout": _duration,
    "base_dir": _text(_BASE_DIR),
    "soc": _text(SOC),
    "os": _one_of("linux", "windows"),
    "target": _text(TARGET),
    "serial": _text(PLAIN),
    "adb_server": _text(ADB_SERVER),
    "identity": _text(PLAIN),
    "labels": _labels,
}
