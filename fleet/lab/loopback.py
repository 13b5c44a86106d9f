"""What boards and phones of an ordinary user share: one process on loopback, a sysroot."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

from fleet.lab.folder import Board, LabFolder
from fleet.lab.phoneprofiles import PhoneProfile
from fleet.lab.process import answers, free_port, last_words
from fleet.lab.profiles import BoardProfile, write_trees
from fleet.lab.tools import atomic_library
from fleet.model.errors import LabError

READY_SECONDS = 20.0


class LoopbackBoard:
    """Starts and ends one board. `what` is its program, `greeting` the first bytes it sends."""

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
        """Where the board's own /sys, /dev, /etc and the files of the factory are."""
        return self._dir / "sysroot"

    def listen(self) -> None:
        """Choose the port; LabError when it is taken."""
        self.board.port = free_port(self.board.port, self.option)

    def _lay_out(self, found: BoardProfile | PhoneProfile, mode: int) -> None:
        for name in ("home", "leases"):
            (self._dir / name).mkdir(exist_ok=True)
        write_trees(self.sysroot, sys=found.sys)
        write_trees(self._dir, sysroot=found.root)
        for name in found.nodes:
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
        """Until the port answers. Raises LabError with the last words of the program."""
        process = self._process
        if process is None or not answers(process, self.board.port, READY_SECONDS, self.greeting):
            words = last_words(self._log)
            raise LabError(
                f"{self.board.name}: {self.what} did not start: {words}",
                hint="fleet lab down, then fleet lab up",
            )
        self.board.pid = process.pid

    def power_off(self) -> None:
        """End the program and what it started."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self.board.pid = 0

    def wipe(self) -> None:
        """Forget what was written on the board."""
        for name in ("home", "sysroot", "leases"):
            shutil.rmtree(self._dir / name, ignore_errors=True)
