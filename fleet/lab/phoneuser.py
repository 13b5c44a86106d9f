"""A phone of an ordinary user: fleet's emulator of adbd, with a shell of this machine.

The files that identify the phone are under its own sysroot, as for boards of an ordinary user.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib.resources import files

from fleet.lab.folder import Board, LabFolder
from fleet.lab.loopback import LoopbackBoard
from fleet.lab.phoneprofiles import phone_profile
from fleet.lab.process import start_logged

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
