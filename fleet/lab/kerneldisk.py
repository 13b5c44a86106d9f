"""The disk that all kernel boards share: a Debian with systemd, built once and cached."""

from __future__ import annotations

import hashlib
import subprocess
from importlib.resources import files
from pathlib import Path

from fleet.lab.archive import BUILD_SECONDS
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
