"""A board of an ordinary user: a real sshd on loopback that logs in that user only.

It shares the host's userland. What it claims to be stands under its own sysroot, which the
facts probe reads because this sshd sets FLEET_SYSROOT.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from pathlib import Path

from fleet.lab.loopback import LoopbackBoard
from fleet.lab.process import start_logged
from fleet.lab.profiles import profile
from fleet.lab.tools import sshd, without_penalties


class UserBoard(LoopbackBoard):
    """Starts and ends one board."""

    what = "sshd"
    greeting = b"SSH-"

    def start(self) -> None:
        """Lay out the sysroot and start sshd."""
        self._lay_out(profile(self.board.profile), 0o660)
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
            **without_penalties(sshd()),
            "SetEnv": f'"FLEET_SYSROOT={self.sysroot}" "FLEET_BOARD_HOME={self.board.home}" '
            f'"FLEET_LEASE_DIR={self._dir / "leases"}"',
        }
        config.write_text("".join(f"{key} {value}\n" for key, value in settings.items()), "utf-8")
        argv = [sshd(), "-D", "-e", "-f", str(config)]
        self._process = start_logged(argv, self._log, {**os.environ, **self._as_root()})

    def _as_root(self) -> dict[str, str]:
        """Return variables that give root's sshd its user `sshd`, if this computer has none."""
        if os.geteuid() != 0:
            return {}
        Path("/run/sshd").mkdir(exist_ok=True)
        with contextlib.suppress(KeyError):
            pwd.getpwnam("sshd")
            return {}
        users = self._dir / "passwd"
        own = "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n"
        users.write_text(Path("/etc/passwd").read_text("utf-8") + own, "utf-8")
        return {
            "FLEET_NSS_WRAPPER": "1",
            "NSS_WRAPPER_PASSWD": str(users),
            "NSS_WRAPPER_GROUP": "/etc/group",
        }
