"""A board with its own kernel: user-mode Linux, with the real systemd, udev and reboot.

Its disk is a file over the disk that all kernel boards share. A power cut loses what the guest has
not written to the disk yet. Written data stays, because the host keeps running.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import tarfile
from importlib.resources import files
from pathlib import Path

from fleet.lab.host import find
from fleet.lab.kerneldisk import UML
from fleet.lab.linked import LinkedBoard
from fleet.lab.process import start_logged
from fleet.lab.profiles import profile

MEMORY_MIB = 192
_UNSHARE = ("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child")
_TURNS = itertools.count()
_PARTS = ("profile", "lab-board", "authorized_keys", "chpasswd", "ssh_host_ed25519_key", "board")
# Scripts of faults see the /sys of the profile. The other mounts are those of the board.
_AS_ROOT = 'mount --make-private /sys; mount --bind /run/lab-root/sys /sys; exec "$@"'
EXEC = ("unshare", "--mount", "--propagation", "unchanged", "sh", "-c", _AS_ROOT, "sh")


# With AMX, the saved registers of a process need more room than older versions have. They panic
# with "ptrace set fp regs failed, errno = 14". Linux 3f17fed21491 (um: switch to regset API and
# depend on XSTATE) asks the host for the size.
FIRST_WITH_AMX = (6, 13)
_CPU = Path("/proc/cpuinfo")


def can_run_kernel() -> str:
    """Return why kernel boards cannot run here, "" if they can.

    A missing user-mode Linux is not a reason, because `fleet lab up` names its package.
    """
    if os.geteuid() != 0:
        return "their network needs a tap device, and that needs root"
    argv = ["unshare", "--net", "ip", "tuntap", "add", "tap0", "mode", "tap"]
    done = subprocess.run(argv, capture_output=True, check=False)
    words = done.stderr.decode("utf-8", "replace").strip()
    if done.returncode:
        return f"their network needs a tap device (/dev/net/tun): {words}"
    program = find(UML)
    return _too_old_for_cpu(program) if program else ""


def _too_old_for_cpu(program: str) -> str:
    """Return why this user-mode Linux does not start on this CPU, "" if it does."""
    if not re.search(r"\bamx_tile\b", _CPU.read_text("utf-8", "replace")):
        return ""
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    version = re.match(r"(\d+)\.(\d+)\S*", done.stdout.strip())
    if version is None:
        return f"user-mode Linux cannot start: {(done.stderr.strip() or program).splitlines()[-1]}"
    if tuple(map(int, version.groups())) >= FIRST_WITH_AMX:
        return ""
    first = ".".join(map(str, FIRST_WITH_AMX))
    return (
        f"user-mode Linux {version[0]} ({program}) panics on a CPU with AMX, and {first} or newer "
        "does not"
    )


class KernelBoard(LinkedBoard):
    """A kernel board that can be started and stopped. A power cut is SIGKILL of its kernel."""

    address = ("10.0.2.15", 22)
    greeting = b"SSH-"
    ready_seconds = 240.0  # 8 s when idle; eight boots at once on two cores need 30 s

    def start(self) -> None:
        """Begin to boot. `wait` waits for the end of the boot."""
        kind = profile(self.board.profile)
        words = (self.board.name, kind.user, *kind.node.split(), *kind.nodes)
        (self._dir / "board").write_text(" ".join(words) + "\n", "utf-8")
        with tarfile.open(self._dir / "own.tar", "w") as tar:
            for part in _PARTS:
                tar.add(self._dir / part, part)
        script = (files("fleet.lab") / "kernel.sh").read_text("utf-8")
        # Each system call of a guest wakes another process. One processor makes this 2.5 times as
        # fast.
        own = sorted(os.sched_getaffinity(0))
        pin = ("taskset", "-c", str(own[next(_TURNS) % len(own)]))
        argv = [*pin, *_UNSHARE, "/bin/bash", "-c", script, "kernel", str(self._dir)]
        self._init = start_logged([*argv, str(self._base), str(MEMORY_MIB)], self._log)
