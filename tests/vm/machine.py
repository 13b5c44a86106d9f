"""A Debian machine under qemu's own CPU emulation: an image built once, booted on loopback."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from fleet.lab.baretree import bare_tree
from fleet.lab.folder import make_key
from fleet.lab.rootfs import cache_dir
from tests.transport.sshd import free_port

NEEDS = {"qemu-system-x86_64": "qemu-system-x86", "mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs"}
PACKAGES = "linux-image-cloud-amd64,systemd-sysv,udev,openssh-server,sudo,dbus,iproute2"
PACKAGES += ",procps,kmod,python3"
BOOT_SECONDS = 240.0  # 25 s on an idle machine; two cores under load take minutes
BUILD_SECONDS = 900
CUSE = Path(__file__).with_name("cuse_node.py")
UNIT = """[Unit]
Description=a FastRPC node in user space (emulated)
[Service]
ExecStartPre=/sbin/modprobe cuse
ExecStart=/usr/bin/python3 /usr/local/lib/cuse_node.py fastrpc-cdsp
[Install]
WantedBy=multi-user.target
"""
SETUP = r"""set -e
echo vm-evk > /etc/hostname; echo '127.0.1.1 vm-evk' >> /etc/hosts
printf '[Match]\nName=en* eth*\n[Network]\nDHCP=yes\n' > /etc/systemd/network/10.network
printf '/dev/vda / ext4 defaults 0 1\n' > /etc/fstab
useradd -m -s /bin/bash -G sudo ubuntu
echo 'ubuntu ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/90-lab
mkdir -p /home/ubuntu/.ssh && cp /key.pub /home/ubuntu/.ssh/authorized_keys
chown -R ubuntu:ubuntu /home/ubuntu; chmod 700 /home/ubuntu/.ssh
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/* /var/lib/apt/lists/*
cd /etc/apt/sources.list.d
printf 'Types: deb\nURIs: file:/srv/lab-apt/ubuntu-qcom-iot/qcom-ppa\nSuites: ./\n' > lab.sources
echo 'Signed-By: /srv/lab-apt/key.asc' >> lab.sources
cd /
systemctl enable systemd-networkd fleet-node.service ssh
"""


def require() -> None:
    """Skip, with the reason, where the tools are not there or this user cannot build."""
    lacking = sorted({package for name, package in NEEDS.items() if not shutil.which(name)})
    if lacking or os.geteuid() != 0:
        pytest.skip(f"a machine needs root and: {', '.join(lacking) or 'nothing else'}")


def image(folder: Path) -> tuple[Path, Path, Path]:
    """(disk, kernel, initrd) of a machine; the built disk is cached, this is a copy of it."""
    recipe = hashlib.sha256((PACKAGES + SETUP + UNIT + CUSE.read_text()).encode())
    place = cache_dir() / "vm" / recipe.hexdigest()[:12]
    if not (place / "root.img").exists():
        _build(place)
    disk = folder / "root.img"
    subprocess.run(["cp", "--sparse=always", str(place / "root.img"), str(disk)], check=True)
    return disk, place / "vmlinuz", place / "initrd.img"


def key() -> Path:
    """The private key that logs in."""
    path = cache_dir() / "vm" / "id_ed25519"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        make_key(path)
    return path


def _build(place: Path) -> None:
    tree, part = place / "tree", place / "root.part"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    argv = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", "bookworm"]
    sources = Path("/etc/apt/sources.list.d/debian.sources")
    more = [str(sources)] if sources.is_file() else []
    subprocess.run([*argv, str(tree), *more], check=True, timeout=BUILD_SECONDS)
    shutil.copytree(bare_tree() / "srv/lab-apt", tree / "srv/lab-apt")
    shutil.copy(CUSE, tree / "usr/local/lib/cuse_node.py")
    (tree / "etc/systemd/system/fleet-node.service").write_text(UNIT)
    shutil.copy(key().with_suffix(".pub"), tree / "key.pub")
    subprocess.run(["chroot", str(tree), "sh", "-c", SETUP], check=True, timeout=120)
    for name in ("vmlinuz", "initrd.img"):
        (found,) = (tree / "boot").glob(f"{name}-*")
        shutil.copy(found, place / name)
    subprocess.run(["truncate", "-s", "2G", str(part)], check=True)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", str(tree), str(part)], check=True)
    shutil.rmtree(tree)
    part.rename(place / "root.img")


class Machine:
    """One machine. `kill` is a power cut: what the guest had not written is lost."""

    def __init__(self, folder: Path) -> None:
        self.disk, self._kernel, self._initrd = image(folder)
        self.port = free_port()
        self._log = folder / "console.log"
        self._qemu: subprocess.Popen[bytes] | None = None

    def boot(self) -> None:
        """Start, and wait until its ssh answers."""
        forward = f"user,id=n0,restrict=on,hostfwd=tcp:127.0.0.1:{self.port}-:22"
        argv = ["qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,tb-size=128"]
        argv += ["-cpu", "max", "-smp", "1", "-m", "512"]
        argv += ["-kernel", str(self._kernel), "-initrd", str(self._initrd)]
        argv += ["-append", "root=/dev/vda rw console=ttyS0 quiet net.ifnames=0"]
        argv += ["-drive", f"file={self.disk},if=virtio,format=raw,cache=none"]
        argv += ["-netdev", forward, "-device", "virtio-net-pci,netdev=n0"]
        argv += ["-device", "virtio-rng-pci", "-display", "none", "-serial", f"file:{self._log}"]
        self._qemu = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
        end = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < end:
            assert self._qemu.poll() is None, "qemu ended"
            if self.ssh("true", check=False).returncode == 0:
                return
            time.sleep(1.0)
        raise AssertionError(f"no ssh after {BOOT_SECONDS:g} s: {self._log.read_text()[-500:]}")

    def ssh(self, script: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a script as the user."""
        options = ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR"]
        options += ["-o", "UserKnownHostsFile=/dev/null", "-o", "ConnectTimeout=5"]
        argv = ["ssh", "-F", "none", *options, "-i", str(key()), "-p", str(self.port)]
        return subprocess.run(
            [*argv, "ubuntu@127.0.0.1", script],
            capture_output=True,
            text=True,
            check=check,
            timeout=60,
        )

    def kill(self) -> None:
        """Power cut."""
        if self._qemu is not None:
            os.kill(self._qemu.pid, signal.SIGKILL)
            self._qemu.wait()
            self._qemu = None
