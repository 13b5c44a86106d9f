"""Programs of a lab: started with a log, waited for, and their ports on loopback."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleet.model.errors import LabError


def start_logged(
    argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own; what it prints goes to `log`."""
    with log.open("wb") as stream:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env=env,
            start_new_session=True,
        )


def last_words(log: Path) -> str:
    """The last three lines of a log, as one."""
    return " | ".join(log.read_text("utf-8", "replace").strip().splitlines()[-3:])


def free_port(port: int, option: str) -> int:
    """The port if it is free, or a free one for 0. Raises LabError that names the option."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise LabError(
                f"port {port} of this workstation, which a lab board needs, is in use",
                hint=f"give another port with {option}",
            ) from error
        return int(probe.getsockname()[1])


def answers(
    process: subprocess.Popen[bytes], port: int, seconds: float, greeting: bytes = b""
) -> bool:
    """Wait until the port takes connections and greets; False when the process ends first."""
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
