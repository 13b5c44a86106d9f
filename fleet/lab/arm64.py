"""An arm64 board: Debian arm64 under qemu-user, with Debian's own libcdsprpc and no DSP."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from fleet.lab.archive import Archive, run, unpack
from fleet.lab.host import find
from fleet.lab.namespace import CPU, NamespaceBoard, boot_script, can_unshare, shell
from fleet.lab.rootfs import APT, building, built_once, cache_dir, downloads

# No arm64 program runs during the build of the userland: it takes seconds instead of minutes
# of emulation. This module does the setup that the packages' scripts would do.

SUITE = "trixie"
QEMU = "qemu-aarch64-static"
NEEDS = {
    **APT,
    QEMU: "qemu-user-static",
    "useradd": "passwd",
}
_FASTRPC = ("libfastrpc1", "libfastrpc-dev", "fastrpc-support")
_PACKAGES = (
    *("openssh-server", "python3", "sudo", "procps", "iproute2", "acl", "libatomic1"),
    *("libstdc++6", "busybox-syslogd"),  # busybox-syslogd, as on images without systemd
    *(f"{name}/{SUITE}-backports" for name in _FASTRPC),
    "hexagon-dsp-binaries-qualcomm-iq9075-evk/sid",  # Debian 13 does not have this package
)
_SUITES = (f"{SUITE} main", f"{SUITE}-backports contrib", "sid non-free-firmware")
# Only the named packages come from unstable. A mirror may be out of date.
_APT = (f'APT::Default-Release "{SUITE}"', 'Acquire::Check-Valid-Until "false"')
_SETUP = r"""set -e
T=$1
for n in passwd group; do cp "$T/usr/share/base-passwd/$n.master" "$T/etc/$n"; done
cp "$T/usr/share/base-files/profile" "$T/usr/share/libc-bin/nsswitch.conf" "$T/etc/"
sed 's/:.*/:*:20000:0:99999:7:::/' "$T/etc/passwd" > "$T/etc/shadow"
sed 's/:.*/:*::/' "$T/etc/group" > "$T/etc/gshadow"
chmod 640 "$T/etc/shadow" "$T/etc/gshadow"
groupadd --prefix "$T" --system fastrpc
useradd --prefix "$T" --system -d /run/sshd -s /usr/sbin/nologin sshd
useradd --prefix "$T" -m -s /bin/bash -G sudo,fastrpc ubuntu
for n in auth account password session session-noninteractive; do
  echo "${n%-*} required pam_unix.so" > "$T/etc/pam.d/common-$n"
done
cp "$T/usr/share/openssh/sshd_config" "$T/etc/ssh/"; mkdir -p "$T/opt" "$T/srv" "$T/mnt"
ln -sf mawk "$T/usr/bin/awk"
for deb in "$3"/*.deb; do
  name=$(dpkg-deb -W --showformat='${Package}' "$deb")
  dpkg-deb -f "$deb" | sed '1a Status: install ok installed'
  echo
  dpkg-deb --fsys-tarfile "$deb" | tar -t | sed 's/^\.//; s#\(.\)/$#\1#' \
    > "$T/var/lib/dpkg/info/$name.list"
  ! dpkg-deb -f "$deb" Multi-Arch | grep -qx same || mv "$T/var/lib/dpkg/info/$name.list" \
    "$T/var/lib/dpkg/info/$name:arm64.list"
done > "$T/var/lib/dpkg/status"
rm -f "$T"/etc/ssh/ssh_host_*
cp "$2" "$T/usr/bin/"
"$2" "$T/sbin/ldconfig" -r "$T"
"""


def arm64_tree() -> Path:
    """Return the cached tree. Raises LabError if tools are missing or the build fails."""
    name = hashlib.sha256(f"{SUITE} {_PACKAGES} {_SETUP}".encode()).hexdigest()[:12]
    target = cache_dir() / "lab" / f"arm64-{SUITE}-{name}"
    return built_once(target, NEEDS, _build)


def _build(target: Path) -> None:
    with building(
        target, "the userland of arm64 boards", "check that apt-get update works"
    ) as part:
        archive = Archive(downloads(part), _SUITES, "arm64", _APT)
        debs = archive.download(["?essential", *_PACKAGES])
        unpack(debs, part)
        run(["sh", "-c", _SETUP, "sh", part, find(QEMU) or "", debs[0].parent])
        archive.remove()


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
