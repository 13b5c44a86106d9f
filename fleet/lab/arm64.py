"""An arm64 board: Debian arm64 under qemu-user, with Debian's own libcdsprpc and no DSP."""

from __future__ import annotations

import os
import subprocess
import sys

from fleet.lab.arm64tree import QEMU
from fleet.lab.host import find
from fleet.lab.namespace import CPU, NamespaceBoard, boot_script, can_unshare, shell

FIRST_KERNEL = (6, 7)


def can_run_arm64() -> str:
    """Return why arm64 boards cannot run here, "" if they can."""
    release = _release()
    numbers = tuple(int(part) for part in release.split("-")[0].split(".")[:2])
    if numbers < FIRST_KERNEL:
        return f"they need Linux 6.7 or newer, but this computer runs {release}"
    if why := can_unshare():
        return why
    argv = ["unshare", "--fork", "--pid", "--mount-proc", *_in_namespace("/bin/true"), "true"]
    done = subprocess.run(argv, capture_output=True, check=False)
    words = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"binfmt_misc in a user namespace: {words[-1]}" if done.returncode else ""


def _release() -> str:
    return os.uname().release


def _in_namespace(qemu: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "fleet.lab.userns", qemu)


class Arm64Board(NamespaceBoard):
    """An arm64 board that can be started, entered and stopped."""

    def start(self) -> None:
        """Begin to boot. `wait` waits for the end of the boot."""
        into, again = 'export M UPPER; exec "${@:9}"\n', 'mount --rbind "$M" "$M"\n'
        argv = (*_in_namespace(find(QEMU) or ""), "/bin/bash", "-c", again + shell("pivot.sh"))
        self._begin(boot_script("board.sh") + into, f"/usr/bin/{QEMU} -cpu {CPU}", *argv)
