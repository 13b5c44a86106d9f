"""The userland of arm64 boards: Debian's packages, unpacked; FastRPC's are the real ones.

No program of it runs while it is made, so that it takes seconds and not minutes of emulation; what
packages would set up themselves is done here.
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from fleet.lab.rootfs import BUILD_SECONDS, building, built_once, cache_dir, find
from fleet.model.errors import LabError

SUITE = "trixie"
QEMU = "qemu-aarch64-static"
NEEDS = {
    QEMU: "qemu-user-static",
    "mmdebstrap": "mmdebstrap",
    "dpkg-deb": "dpkg",
    "useradd": "passwd",
}
_FASTRPC = ("libfastrpc1", "libfastrpc-dev", "fastrpc-support")
_PACKAGES = ",".join(
    (
        *(
            "openssh-server",
            "python3",
            "sudo",
            "procps",
            "iproute2",
            "acl",
            "libatomic1",
            "libstdc++6",
            "busybox-syslogd",  # as on images without systemd
        ),
        *(f"{name}/{SUITE}-backports" for name in _FASTRPC),
        "hexagon-dsp-binaries-qualcomm-iq9075-evk/sid",  # of Debian 13 there is none
    )
)
# Of unstable only what is named; a mirror may be behind.
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
for deb in "$T"/var/cache/apt/archives/*.deb; do
  name=$(dpkg-deb -W --showformat='${Package}' "$deb")
  dpkg-deb -f "$deb" | sed '1a Status: install ok installed'
  echo
  dpkg-deb --fsys-tarfile "$deb" | tar -t | sed 's/^\.//; s#\(.\)/$#\1#' \
    > "$T/var/lib/dpkg/info/$name.list"
  ! dpkg-deb -f "$deb" Multi-Arch | grep -qx same || mv "$T/var/lib/dpkg/info/$name.list" \
    "$T/var/lib/dpkg/info/$name:arm64.list"
done > "$T/var/lib/dpkg/status"
rm -f "$T"/var/cache/apt/archives/*.deb "$T"/var/lib/apt/lists/*_* "$T"/etc/ssh/ssh_host_*
cp "$2" "$T/usr/bin/"
"$2" "$T/sbin/ldconfig" -r "$T"
"""


def arm64_tree(*, install: bool = False) -> Path:
    """The cached tree. Raises LabError when tools are missing or the build fails."""
    name = hashlib.sha256(f"{SUITE} {_PACKAGES} {_SETUP}".encode()).hexdigest()[:12]
    target = cache_dir() / "lab" / f"arm64-{SUITE}-{name}"
    return built_once(target, NEEDS, _build, install=install)


def _build(target: Path) -> None:
    mirror = _mirror()
    lines = (f"{SUITE} main", f"{SUITE}-backports contrib", "sid non-free-firmware")
    with building(
        target, "the userland of arm64 boards", "check that apt-get update works"
    ) as part:
        sources = target.with_name(f"{target.name}.list")
        sources.write_text("".join(f"deb {mirror} {line}\n" for line in lines), "utf-8")
        argv = ["mmdebstrap", "--quiet", "--variant=extract", "--architectures=arm64"]
        argv += [f"--aptopt={option}" for option in _APT]
        argv.append("--skip=cleanup/apt")
        argv += ["--include=?essential", f"--include={_PACKAGES}", SUITE, str(part), str(sources)]
        shell = ["sh", "-c", _SETUP, "sh", str(part), find(QEMU) or ""]
        for command in (argv, shell):
            subprocess.run(command, check=True, capture_output=True, timeout=BUILD_SECONDS)


def _mirror() -> str:
    """Where apt has Debian from. Raises LabError."""
    argv = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    for address in done.stdout.split():
        if address.rstrip("/").endswith("/debian"):
            return address
    raise LabError(
        "fleet builds the userland of arm64 boards from Debian packages, but apt on this "
        "computer has no Debian mirror",
        hint="add a Debian mirror to the sources of apt, then run apt-get update",
    )
