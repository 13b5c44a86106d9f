"""The common part of boards and phones of an ordinary user: a process on loopback and a sysroot."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

from fleet.lab.folder import Board, LabFolder
from fleet.lab.process import answers, free_port, last_words, start_logged
from fleet.lab.profiles import BoardProfile, PhoneProfile, phone_profile, write_trees
from fleet.lab.tools import atomic_library
from fleet.model.errors import LabError

READY_SECONDS = 20.0


class LoopbackBoard:
    """A board or phone that is one process. `what` is its program, `greeting` its first bytes."""

    what = ""
    option = "--port"
    greeting = b""

    def __init__(self, board: Board, folder: LabFolder) -> None:
        self.board = board
        self._dir = folder.board(board.name)
        self._log = self._dir / "board.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def sysroot(self) -> Path:
        """The folder with the board's own /sys, /dev, /etc and factory files."""
        return self._dir / "sysroot"

    def listen(self) -> None:
        """Choose the port. Raises LabError if the port is in use."""
        self.board.port = free_port(self.board.port, self.option)

    def _lay_out(self, kind: BoardProfile | PhoneProfile, mode: int) -> None:
        for name in ("home", "leases"):
            (self._dir / name).mkdir(exist_ok=True)
        write_trees(self.sysroot, sys=kind.sys)
        write_trees(self._dir, sysroot=kind.root)
        for name in kind.nodes:
            node = self.sysroot / "dev" / name
            node.parent.mkdir(parents=True, exist_ok=True)
            if not node.exists():
                node.touch(mode)
        (self.sysroot / "etc").mkdir(exist_ok=True)
        if library := atomic_library():
            place = self._dir / "home" / "fleet" / "shim"
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, place)
        shutil.copy(self._dir / "lab-board", self.sysroot / "etc" / "fleet-lab-board")

    def wait(self) -> None:
        """Wait until the port answers. Raises LabError with the last lines of the program's log."""
        process = self._process
        if process is None or not answers(process, self.board.port, READY_SECONDS, self.greeting):
            words = last_words(self._log)
            raise LabError(
                f"{self.board.name}: {self.what} did not start: {words}",
                hint="fleet lab down, then fleet lab up",
            )
        self.board.pid = process.pid

    def power_off(self) -> None:
        """Kill the program and the processes that it started."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self.board.pid = 0

    def wipe(self) -> None:
        """Delete everything that was written on the board."""
        for name in ("home", "sysroot", "leases"):
            shutil.rmtree(self._dir / name, ignore_errors=True)


_MANNERS = {
    "unauthorized": ("--auth", "never"),
    "asks": ("--auth", "key"),
    "recovery": ("--state", "recovery"),
    "old-features": ("--old",),
}
MANNERS = tuple(_MANNERS)


class EmulatedPhone(LoopbackBoard):
    """An emulated phone that can be started and stopped."""

    what = "the emulator"
    option = "--phone-port"

    def __init__(self, board: Board, folder: LabFolder) -> None:
        super().__init__(board, folder)
        self.manner = ""

    def start(self) -> None:
        """Write the sysroot and start the emulator."""
        self._lay_out(phone_profile(self.board.profile, self.board.name.upper()), 0o664)
        self._write_programs()
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
        self._process = start_logged(argv, self._log, env)

    def _write_programs(self) -> None:
        (self._dir / "bin").mkdir(exist_ok=True)
        for program in (files("fleet.lab") / "android").iterdir():
            if program.is_file() and not program.name.endswith(".py"):
                script = self._dir / "bin" / program.name
                text = program.read_text("utf-8").replace("#!/system/bin/sh", "#!/bin/sh", 1)
                script.write_text(text, "utf-8")
                script.chmod(0o755)

    def signal(self, name: str) -> None:
        """Send STOP or CONT, or send KILL and restart, as init does with a real adbd."""
        if self._process is None:
            return
        if name == "KILL":
            self.power_off()
            self.start()
            self.wait()
        else:
            os.kill(self._process.pid, signal.Signals[f"SIG{name}"])
