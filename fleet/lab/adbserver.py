"""The adb server of a lab: a private port, its own keys, no USB devices. It ends with the lab."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

from fleet.lab.process import answers, free_port, last_words, start_logged
from fleet.model.errors import LabError
from fleet.model.extras import install_extra
from fleet.model.inventory import ADB

_WAIT = "wait-for-device"
READY_SECONDS = 20.0  # the first start generates a key


def adb_program() -> str:
    """Return the path of adb: from PATH, else the one that adbutils contains. Raises LabError."""
    own = shutil.which(ADB.name)
    if own:
        return own
    package = find_spec("adbutils")
    for folder in package.submodule_search_locations or () if package else ():
        path = Path(folder) / "binaries" / ADB.name
        if path.is_file():
            return str(path)
    raise LabError(
        "adb is not installed; lab phones need it",
        hint=f"sudo apt-get install adb, or the extra `adb`: {install_extra('adb')}",
    )


class LabAdbServer:
    """A single `adb server`, as a child of the lab's daemon."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / ADB.name
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def address(self) -> str:
        """The address of the server, `127.0.0.1:PORT`."""
        return f"127.0.0.1:{self.port}"

    def start(self, port: int = 0) -> None:
        """Start the server on this port, or on a free one, and wait until it answers.

        Raises LabError.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port(port, "port")
        env = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(self._folder),
            "ANDROID_USER_HOME": str(self._folder),
            "TMPDIR": str(self._folder),
            # The lab must not use the user's own phones, or emulators on the user's ports.
            "ADB_USB": "0",
            "ADB_EMU": "0",
            "ADB_LOCAL_TRANSPORT_MAX_PORT": "5553",
            "ADB_MDNS": "0",
            "ADB_MDNS_AUTO_CONNECT": "0",
        }
        argv = [adb_program(), "-L", f"tcp:{self.port}", "server", "nodaemon"]
        log = self._folder / "server.log"
        self._process = start_logged(argv, log, env)
        if not answers(self._process, self.port, READY_SECONDS):
            raise LabError(f"the adb server does not start: {last_words(log)}", hint=f"cat {log}")

    def stop(self) -> None:
        """Kill the process that `start` created."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


def reconnect(server: str, serial: str) -> None:
    """Disconnect and connect a phone until the adb server lists it as a device, for at most a
    minute.

    A connection made while the phone's daemon starts can stay "offline", and the server does not
    retry by itself. `server` is HOST:PORT.
    """
    argv = [adb_program(), "-P", server.rpartition(":")[2]]

    def adb(*words: str) -> bool:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run([*argv, *words], capture_output=True, check=True, timeout=5)
            return True
        return False

    end = time.monotonic() + 3 * READY_SECONDS
    while time.monotonic() < end:
        adb("disconnect", serial)
        adb("connect", serial)
        if adb("-s", serial, _WAIT):
            return
