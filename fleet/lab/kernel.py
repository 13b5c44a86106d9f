"""A board with its own kernel: user-mode Linux, with the real systemd, udev and reboot.

Its disk is a file over the disk that all kernel boards share. A power cut loses what the guest has
not written to the disk yet. Written data stays, because the host keeps running.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import subprocess
import tarfile
from importlib.resources import files
from pathlib import Path

from fleet.lab.archive import BUILD_SECONDS
from fleet.lab.host import find
from fleet.lab.linked import LinkedBoard
from fleet.lab.process import start_logged
from fleet.lab.profiles import profile
from fleet.lab.rootfs import (
    APT,
    PACKAGES,
    SUITE,
    USERS,
    bootstrap,
    building,
    built_once,
    cache_dir,
    run_inside,
)

UML = "linux.uml"
NEEDS = {
    **APT,
    UML: "user-mode-linux",
    "mke2fs": "e2fsprogs",
    "ip": "iproute2",
}
_PACKAGES = f"{PACKAGES},systemd-sysv,dbus".replace(",systemd-standalone-sysusers", "")
_SIZE = "2G"  # size of the file system; the file is sparse
_UNIT = """[Unit]
Description=what the lab gives this board (emulated)
DefaultDependencies=no
Requires=local-fs.target
After=local-fs.target systemd-tmpfiles-setup-dev.service
Before=sysinit.target ssh.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/lab-board
[Install]
WantedBy=sysinit.target
"""
_SETUP = f"""{USERS}
echo '/dev/ubda / ext4 defaults 0 1' > /etc/fstab
printf 'SetEnv FLEET_SYSROOT=/run/lab-root\\nUseDNS no\\nMaxSessions 100\\n' \\
  > /etc/ssh/sshd_config.d/lab.conf
echo 'Defaults env_keep += FLEET_SYSROOT' > /etc/sudoers.d/lab
chmod 755 /usr/local/sbin/lab-board
systemctl enable lab-board ssh
systemctl mask getty.target systemd-logind ldconfig e2scrub_reap systemd-pstore systemd-timesyncd \\
  systemd-networkd modprobe@efi_pstore modprobe@drm apt-daily.timer apt-daily-upgrade.timer \\
  dpkg-db-backup.timer e2scrub_all.timer fstrim.timer
"""


def kernel_disk() -> Path:
    """Return the cached disk. Raises LabError if tools are missing or the build fails."""
    parts = [_PACKAGES, _SIZE, _UNIT, _SETUP, _guest()]
    name = hashlib.sha256(" ".join(parts).encode()).hexdigest()[:12]
    target = cache_dir() / "lab" / f"kernel-{SUITE}-{name}"
    return built_once(target, NEEDS, _build) / "disk"


def _guest() -> str:
    return (files("fleet.lab") / "guest.sh").read_text("utf-8")


def _build(target: Path) -> None:
    with building(target, "the disk of kernel boards", "check that apt-get update works") as part:
        tree, disk = part / "tree", part / "disk"
        part.mkdir(parents=True)
        bootstrap(tree, _PACKAGES)
        (tree / "usr/local/sbin/lab-board").write_text(_guest(), "utf-8")
        (tree / "etc/systemd/system/lab-board.service").write_text(_UNIT, "utf-8")
        run_inside(tree, _SETUP)
        for argv in (
            ["truncate", "-s", _SIZE, str(disk)],
            ["mke2fs", "-q", "-t", "ext4", "-d", str(tree), str(disk)],
            ["rm", "-rf", str(tree)],
        ):
            subprocess.run(argv, check=True, capture_output=True, timeout=BUILD_SECONDS)


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
