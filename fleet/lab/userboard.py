"""A board of an ordinary user: a real sshd on loopback that logs in that user only.

It shares the host's userland. What it claims to be stands under its own sysroot, which the
facts probe reads because this sshd sets FLEET_SYSROOT.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from fleet.lab.folder import Board, Folder
from fleet.lab.ports import claimed
from fleet.lab.profiles import profile
from fleet.lab.rootfs import find
from fleet.model.errors import LabError

READY_SECONDS = 15.0


class UserBoard:
    """Starts and ends one board."""

    def __init__(self, board: Board, folder: Folder) -> None:
        self.board = board
        self._dir = folder.board(board.name)
        self._sshd: subprocess.Popen[bytes] | None = None

    @property
    def sysroot(self) -> Path:
        """Where the board's /sys, /dev and /etc are."""
        return self._dir / "sysroot"

    def listen(self) -> None:
        """Choose the port; LabError when it is taken."""
        self.board.port = claimed(self.board.port, "--port")

    def start(self) -> None:
        """Lay out the sysroot and start sshd."""
        self._lay_out()
        sshd = find("sshd")
        if sshd is None:
            raise LabError("lab boards need sshd", hint="sudo apt-get install openssh-server")
        config = self._dir / "sshd_config"
        settings = {
            "ListenAddress": f"127.0.0.1:{self.board.port}",
            "HostKey": f'"{self._dir}/ssh_host_ed25519_key"',
            "AuthorizedKeysFile": f'"{self._dir}/authorized_keys"',
            "PidFile": "none",
            "UsePAM": "no",
            "UseDNS": "no",
            "StrictModes": "no",
            "PasswordAuthentication": "no",
            "PermitRootLogin": "yes",
            "PrintMotd": "no",
            "MaxSessions": "100",
            "MaxStartups": "100",
            "Subsystem": "sftp internal-sftp",
            "SetEnv": f'"FLEET_SYSROOT={self.sysroot}" "FLEET_BOARD_HOME={self.board.home}" '
            f'"FLEET_LEASE_DIR={self._dir / "leases"}"',
        }
        config.write_text("".join(f"{key} {value}\n" for key, value in settings.items()), "utf-8")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        with (self._dir / "board.log").open("wb") as log:
            self._sshd = subprocess.Popen(
                [sshd, "-D", "-e", "-f", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _lay_out(self) -> None:
        Path(self.board.home).mkdir(parents=True, exist_ok=True)
        (self._dir / "leases").mkdir(exist_ok=True)
        found = profile(self.board.profile)
        found.write(self.sysroot)
        factory = self.sysroot / "root"
        shutil.copytree(factory, self.sysroot, dirs_exist_ok=True)
        shutil.rmtree(factory)
        for name in found.nodes:
            node = self.sysroot / "dev" / name
            node.parent.mkdir(parents=True, exist_ok=True)
            if not node.exists():
                node.touch(0o660)
        (self.sysroot / "etc").mkdir(exist_ok=True)
        shutil.copy(self._dir / "lab-board", self.sysroot / "etc" / "fleet-lab-board")

    def wait(self) -> None:
        """Until the port answers."""
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end and self._sshd and self._sshd.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", self.board.port), 1) as probe:
                    probe.settimeout(5)
                    if probe.recv(4) == b"SSH-":
                        self.board.pid = self._sshd.pid
                        return
            except OSError:
                time.sleep(0.01)
        words = (self._dir / "board.log").read_text("utf-8", "replace").strip().splitlines()
        raise LabError(f"{self.board.name}: sshd does not start: {' | '.join(words[-3:])}")

    def power_off(self) -> None:
        """End sshd and the sessions that it holds."""
        if self._sshd is not None and self._sshd.poll() is None:
            os.killpg(self._sshd.pid, signal.SIGKILL)
            self._sshd.wait()
        self.board.pid = 0

    def wipe(self) -> None:
        """Forget what was written on the board."""
        for name in ("home", "sysroot", "leases"):
            shutil.rmtree(self._dir / name, ignore_errors=True)
