"""Programs of a lab: start with a log, wait for an answer, choose ports on loopback."""

from __future__ import annotations

import random
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleet.model.errors import LabError

_OWN_PORTS = range(24000, 32768)  # the ports above are those of outgoing connections on Linux


def start_logged(
    argv: Sequence[str],
    log: Path,
    env: Mapping[str, str] | None = None,
    keep: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a program in its own session, with its output in `log`.

    The program inherits the descriptors of `keep`.
    """
    with log.open("wb") as stream:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env=env,
            start_new_session=True,
            pass_fds=keep,
        )


def last_words(log: Path) -> str:
    """Return the last three lines of a log, joined by ` | `."""
    return " | ".join(log.read_text("utf-8", "replace").strip().splitlines()[-3:])


def free_port(port: int, option: str) -> int:
    """Return the port if it is free, or any free port for 0. Raises LabError that names the option.

    A chosen port is outside the range that the kernel assigns to outgoing connections. Otherwise
    another program could get the port before the board's program does.
    """
    choices = [port] if port else [*random.SystemRandom().sample(_OWN_PORTS, 50), 0]
    for number in choices:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", number))
            except OSError as error:
                why = error
                continue
            return int(probe.getsockname()[1])
    raise port_in_use(port, option) from why


def port_in_use(port: int, option: str) -> LabError:
    """Return the error for a requested port that is in use. `option` is the option that set it."""
    what = "phone" if option == "--phone-port" else "board"
    return LabError(
        f"a lab {what} needs port {port} of this workstation, but another program uses the port",
        hint=f"choose another port with {option}, or leave {option} out: then fleet finds a free "
        "port",
    )


def answers(
    process: subprocess.Popen[bytes], port: int, seconds: float, greeting: bytes = b""
) -> bool:
    """Wait until the port greets a connection. Return False if the process ends first."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as probe:
                probe.settimeout(5)
                if probe.recv(len(greeting)) == greeting:
                    return True
        except OSError:
            time.sleep(0.01)
    return False
