"""A Debian machine under qemu's own CPU emulation: an image built once, booted on loopback.

Its FastRPC nodes are devices of the kernel: Android's binder gives misc devices the names that it
is told, with real uevents, 0600 root as fastrpc has them. No DSP is behind them (emulated).
/dev/dma_heap/system is the kernel's.
"""

from __future__ import annotations

import hashlib
import io
import os
import shlex
import shutil
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from fleet.lab.folder import make_key
from fleet.lab.rootfs import cache_dir
from tests.apt import KEYS, mirror
from tests.transport.sshd import free_port

NEEDS = {"qemu-system-x86_64": "qemu-system-x86", "mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs"}
SUITE = "trixie"  # bookworm's kernel has no DMA heaps, those for clouds have no binder
PACKAGES = "linux-image-amd64,systemd-sysv,udev,openssh-server,sudo,dbus,iproute2"
PACKAGES += ",procps,kmod,python3"
_CHEAP = "mitigations=off apparmor=0 audit=0"  # of what an emulated CPU pays dearly for
_LATE = "no_timer_check panic=-1"  # the timer of an emulated CPU may be late; else boot again
BOOT_SECONDS = 600.0  # a minute when idle; two cores under load take many
BUILD_SECONDS = 900
COMMAND_SECONDS = 600
REPOSITORY = "/srv/repository"
NODES = "fastrpc-cdsp,fastrpc-cdsp-secure,fastrpc-adsp,fastrpc-adsp-secure"
SETUP = rf"""set -e
echo 'options binder_linux devices={NODES}' > /etc/modprobe.d/fastrpc.conf
echo binder_linux > /etc/modules-load.d/fastrpc.conf
sed -i s/^MODULES=.*/MODULES=list/ /etc/initramfs-tools/initramfs.conf
printf 'virtio_pci\nvirtio_blk\next4\n' > /etc/initramfs-tools/modules; update-initramfs -u
echo vm-evk > /etc/hostname; echo '127.0.1.1 vm-evk' >> /etc/hosts
printf '[Match]\nName=en* eth*\n[Network]\nDHCP=yes\n' > /etc/systemd/network/10.network
printf '/dev/vda / ext4 defaults 0 1\n' > /etc/fstab
useradd -m -s /bin/bash -G sudo ubuntu
echo 'ubuntu ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/90-lab
for home in /root /home/ubuntu; do
  mkdir -m 700 -p $home/.ssh; cp /key.pub $home/.ssh/authorized_keys
done
chown -R ubuntu:ubuntu /home/ubuntu; mkdir {REPOSITORY}
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/* /var/lib/apt/lists/*
echo 'deb [trusted=yes] file:{REPOSITORY} ./' > /etc/apt/sources.list
systemctl enable systemd-networkd ssh
systemctl mask getty.target systemd-logind ldconfig systemd-pstore systemd-timesyncd \
  apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \
  e2scrub_all.timer e2scrub_reap fstrim.timer
"""


def require() -> None:
    """Skip, with the reason, where the tools are not there or this user cannot build."""
    lacking = sorted({package for name, package in NEEDS.items() if not shutil.which(name)})
    if lacking or os.geteuid() != 0:
        pytest.skip(f"a machine needs root and: {', '.join(lacking) or 'nothing else'}")


def image(folder: Path) -> tuple[Path, Path, Path]:
    """(disk, kernel, initrd) of a machine; the built disk is cached, this is a copy of it."""
    recipe = hashlib.sha256((SUITE + PACKAGES + SETUP).encode())
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
    argv = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", SUITE]
    source = f"deb [signed-by={KEYS}] {mirror()} {SUITE} main"
    subprocess.run([*argv, str(tree), source], check=True, timeout=BUILD_SECONDS)
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
        self.known_hosts = folder / "known_hosts"
        self._log = folder / "console.log"
        self._qemu: subprocess.Popen[bytes] | None = None

    def boot(self) -> None:
        """Start, and wait until its ssh answers."""
        forward = f"user,id=n0,restrict=on,hostfwd=tcp:127.0.0.1:{self.port}-:22"
        argv = ["qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,tb-size=128"]
        argv += ["-cpu", "max,la57=off", "-smp", "1", "-m", "512"]
        argv += ["-kernel", str(self._kernel), "-initrd", str(self._initrd)]
        argv += ["-append", f"root=/dev/vda rw console=ttyS0 quiet net.ifnames=0 {_CHEAP} {_LATE}"]
        argv += ["-drive", f"file={self.disk},if=virtio,format=raw,cache=none"]
        argv += ["-netdev", forward, "-device", "virtio-net-pci,netdev=n0"]
        argv += ["-device", "virtio-rng-pci", "-display", "none", "-serial", f"file:{self._log}"]
        self._qemu = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
        end = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < end:
            assert self._qemu.poll() is None, "qemu ended"
            if self.ssh("true", check=False).returncode == 0:
                master = [*self._login("root"), "-fNM"]
                none = subprocess.DEVNULL
                subprocess.run(master, check=True, stdin=none, stdout=none, stderr=none)
                return
            time.sleep(1.0)
        self.kill()
        raise AssertionError(f"no ssh after {BOOT_SECONDS:g} s: {self._log.read_text()[-500:]}")

    def ssh(
        self, script: str, *, user: str = "ubuntu", check: bool = True, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[str]:
        """Run a script as a user; `root` has the same key."""
        done = subprocess.run(
            [*self._login(user), script],
            capture_output=True,
            input=stdin,
            check=check,
            timeout=COMMAND_SECONDS,
        )
        words = (done.stdout.decode(), done.stderr.decode())
        return subprocess.CompletedProcess(done.args, done.returncode, *words)

    def _login(self, user: str) -> list[str]:
        """Without a command; those of root share a connection, as each costs two seconds."""
        wanted = "BatchMode=yes StrictHostKeyChecking=accept-new LogLevel=ERROR"
        wanted += " ConnectTimeout=60 ServerAliveInterval=30"
        options = [f"-o{word}" for word in wanted.split()]
        options += [f"-oUserKnownHostsFile={self.known_hosts}", "-S", f"{self.known_hosts}.{user}"]
        argv = ["ssh", "-F", "none", *options, "-i", str(key()), "-p", str(self.port)]
        return [*argv, f"{user}@127.0.0.1"]

    def exec(self, _: str, argv: list[str]) -> subprocess.CompletedProcess[str]:
        """As root, as `Lab.exec` does it."""
        return self.ssh(shlex.join(argv), user="root", check=False)

    def offer(self, folder: Path) -> None:
        """The packages of a folder are those that its apt knows."""
        with io.BytesIO() as data:
            with tarfile.open(fileobj=data, mode="w") as tar:
                tar.add(folder, ".")
            script = (
                f"rm -rf {REPOSITORY}/*; tar -xC {REPOSITORY} --no-same-owner; apt-get -q update"
            )
            self.ssh(script, user="root", stdin=data.getvalue())

    def kill(self) -> None:
        """Power cut."""
        if self._qemu is not None:
            os.kill(self._qemu.pid, signal.SIGKILL)
            self._qemu.wait()
            self._qemu = None
