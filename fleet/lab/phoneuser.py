"""A phone of an ordinary user: our emulator of adbd, commands by a shell of this machine.

What it claims to be stands under its own sysroot, as with boards of an ordinary user.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path

from fleet.lab.folder import Board, Folder
from fleet.lab.phoneprofiles import phone_profile
from fleet.lab.ports import claimed
from fleet.lab.profiles import write_trees
from fleet.model.errors import LabError

READY_SECONDS = 20.0
_MANNERS = {
    "unauthorized": ("--auth", "never"),
    "asks": ("--auth", "key"),
    "recovery": ("--state", "recovery"),
    "old-features": ("--old",),
}
MANNERS = tuple(_MANNERS)


class EmulatedPhone:
    """Starts and ends one phone."""

    def __init__(self, board: Board, folder: Folder) -> None:
        self.board = board
        self._dir = folder.board(board.name)
        self._process: subprocess.Popen[bytes] | None = None
        self.manner = ""

    @property
    def sysroot(self) -> Path:
        """Where the phone's /system, /vendor, /sys, /dev and /etc are."""
        return self._dir / "sysroot"

    def listen(self) -> None:
        """Choose the port; LabError when it is taken."""
        self.board.port = claimed(self.board.port, "--phone-port")

    def start(self) -> None:
        """Lay out the sysroot and start the emulator."""
        self._lay_out()
        argv = [sys.executable, "-m", "fleet.lab.adbd", "--port", str(self.board.port)]
        argv += ["--root", "/", *_MANNERS.get(self.manner, ())]
        home = str(self._dir / "home")
        env = {
            "PATH": f"{self._dir / 'bin'}:{os.environ.get('PATH', '/usr/bin:/bin')}",
            "HOME": home,
            "TMPDIR": home,
            "FLEET_SYSROOT": str(self.sysroot),
            "FLEET_BOARD_HOME": home,
            "FLEET_LEASE_DIR": str(self._dir / "leases"),
        }
        with (self._dir / "board.log").open("wb") as log:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
                start_new_session=True,
            )

    def _lay_out(self) -> None:
        for name in ("home", "leases", "bin"):
            (self._dir / name).mkdir(exist_ok=True)
        found = phone_profile(self.board.profile, self.board.name.upper())
        write_trees(self.sysroot, sys=found.sys)
        for path, content in found.root.items():
            target = self.sysroot / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        for name in found.nodes:
            node = self.sysroot / "dev" / name
            node.parent.mkdir(parents=True, exist_ok=True)
            node.touch(0o664)
        (self.sysroot / "etc").mkdir(exist_ok=True)
        shutil.copy(self._dir / "lab-board", self.sysroot / "etc" / "fleet-lab-board")
        for one in (files("fleet.lab") / "android").iterdir():
            if one.is_file() and not one.name.endswith(".py"):
                script = self._dir / "bin" / one.name
                text = one.read_text("utf-8").replace("#!/system/bin/sh", "#!/bin/sh", 1)
                script.write_text(text, "utf-8")
                script.chmod(0o755)

    def wait(self) -> None:
        """Until the port answers."""
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end and self._process and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.board.port), 1).close()
            except OSError:
                time.sleep(0.01)
            else:
                self.board.pid = self._process.pid
                return
        words = (self._dir / "board.log").read_text("utf-8", "replace").strip().splitlines()
        raise LabError(f"{self.board.name}: the emulator does not start: {' | '.join(words[-3:])}")

    def signal(self, name: str) -> None:
        """STOP, CONT, or KILL with a new start: as init does with a real adbd."""
        if self._process is None:
            return
        if name == "KILL":
            self.power_off()
            self.start()
            self.wait()
        else:
            os.kill(self._process.pid, signal.Signals[f"SIG{name}"])

    def power_off(self) -> None:
        """End the emulator; programs that it started see their streams close."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self.board.pid = 0

    def wipe(self) -> None:
        """Forget what was written on the phone."""
        for name in ("home", "sysroot", "leases"):
            shutil.rmtree(self._dir / name, ignore_errors=True)
