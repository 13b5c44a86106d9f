"""The devices that this workstation knows: hosts of an ssh config, phones of an adb server."""

from __future__ import annotations

import glob
import os
import re
import shlex
from pathlib import Path

import paramiko

from fleet.model.deadline import Deadline
from fleet.model.errors import InputError, TransportError, reason
from fleet.transport.connection import for_paramiko

ADB_SECONDS = 1.0  # the server is on loopback, or does not run
USER_CONFIG = Path("~/.ssh/config")
_INCLUDE = re.compile(r"(?im)^[ \t]*include[ \t]*[ \t=][ \t]*(.+)$")


def config_hosts(path: Path | None = None) -> list[tuple[str, Path]]:
    """Return (alias, file) for each alias of an ssh config that stands for one host.

    Wildcards and negations are left out. `Include` is followed as in ssh_config(5); the file is the
    one with the alias. Without `path`, read the user's own file; return [] if there is none. Raises
    InputError for a file that cannot be read.
    """
    source = path or USER_CONFIG.expanduser()
    if not source.is_file():
        if path is not None:
            raise InputError(f"the ssh config {path} does not exist", hint=f"ls {path.parent}")
        return []
    hosts: dict[str, Path] = {}
    for file in _with_included(source):
        try:
            lines = map(for_paramiko, file.read_text("utf-8").splitlines())
            # paramiko's get_hostnames does not know `Match`.
            text = "\n".join("Host *" if line.startswith("Match ") else line for line in lines)
            names = paramiko.SSHConfig.from_text(text).get_hostnames()
        except (paramiko.SSHException, OSError, ValueError) as error:
            raise _unreadable(file, error) from error
        for name in names:
            if name and not set(name) & set("*?!"):
                hosts.setdefault(name, file)
    return sorted(hosts.items())


def _with_included(source: Path) -> list[Path]:
    """Return the file and all files that it includes, each once: a file may include itself."""
    files, waiting = [], [source]
    while waiting:
        file = waiting.pop(0)
        if file in files:
            continue
        files.append(file)
        try:
            text = file.read_text("utf-8")
            words = [shlex.split(line) for line in _INCLUDE.findall(text)]
        except (OSError, ValueError) as error:
            raise _unreadable(file, error) from error
        for pattern in (word for line in words for word in line):
            # Relative paths start from ~/.ssh, whichever file contains them: ssh_config(5).
            known = os.path.expanduser(pattern)  # noqa: PTH111 - ~nobody stays unchanged
            place = str(USER_CONFIG.expanduser().parent / known)
            names = glob.glob(place)  # noqa: PTH207 - no hidden files, as in glob(3)
            waiting += sorted(path for path in map(Path, names) if path.is_file())
    return files


def _unreadable(file: Path, error: Exception) -> InputError:
    return InputError(
        f"cannot read the ssh config {file}: {reason(error)}",
        hint="give addresses instead: fleet init FOLDER [user@]host[:port] ...",
    )


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
