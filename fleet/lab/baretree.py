"""The userland of bare boards: without FastRPC, but with a package repository to install it from.

It is built once from the shared userland and cached. A bare board needs no network: the repository
is a folder on the board, signed with a key that is then deleted.
"""

from __future__ import annotations

import hashlib
import subprocess
from importlib.resources import files
from pathlib import Path

from fleet.lab import packages as lab_packages
from fleet.lab.archive import BUILD_SECONDS
from fleet.lab.debs import openpgp, write_repository
from fleet.lab.rootfs import building, built_once, rootfs, run_inside

REPOSITORY = "/srv/lab-apt"
KEY = f"{REPOSITORY}/key.asc"
_REMOVED = ("libatomic1", "acl")
_STRIP = f"""set -e
export DEBIAN_FRONTEND=noninteractive
dpkg --purge --force-depends {" ".join(_REMOVED)} >/dev/null
gpasswd -d ubuntu fastrpc >/dev/null; groupdel fastrpc
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/* /var/lib/apt/lists/* /var/cache/apt/*.bin
rm -f /etc/group- /etc/gshadow- /etc/passwd- /etc/shadow-
chmod 755 /usr/local/bin/udevadm /usr/local/bin/systemctl /usr/local/sbin/reboot
ldconfig
"""


def bare_tree() -> Path:
    """Return the cached tree. Raises LabError if it cannot be built."""
    base = rootfs()
    target = base.with_name(f"{base.name}-bare-{_recipe()}")
    return built_once(target, {}, lambda place: _build(base, place))


def _recipe() -> str:
    """Return a hash of everything that goes into the tree."""
    digest = hashlib.sha256(_STRIP.encode())
    for name in ("baretree.py", "packages.py", "debian.py", "debs.py", "elf.py"):
        digest.update((files("fleet.lab") / name).read_bytes())
    for name in ("udevadm", "systemctl"):
        digest.update(_stand_in(name))
    for rules in sorted((files("fleet.lab") / "rules").iterdir(), key=lambda path: path.name):
        digest.update(rules.read_bytes())
    return digest.hexdigest()[:12]


def _stand_in(name: str) -> bytes:
    return (files("fleet.lab") / "standins" / name).read_bytes()


def _build(base: Path, target: Path) -> None:
    with building(target, "the userland of bare boards") as part:
        argv = ["cp", "-a", str(base), str(part)]
        subprocess.run(argv, check=True, capture_output=True, timeout=BUILD_SECONDS)
        _fill(part)
        run_inside(part, _STRIP)


def _fill(tree: Path) -> None:
    common = [lab_packages.repack(tree, name) for name in _REMOVED]
    key = openpgp().Tsk.generate("fleet lab, emulated <lab@localhost>")
    for place, debs in lab_packages.REPOSITORIES.items():
        write_repository(tree / REPOSITORY.lstrip("/") / place, [*debs(), *common], key)
    certificate = str(key.extract_certificate())
    (tree / KEY.lstrip("/")).write_text(certificate, "utf-8")
    for name in ("udevadm", "systemctl"):
        (tree / "usr/local/bin" / name).write_bytes(_stand_in(name))
    (tree / "usr/local/sbin/reboot").write_text(
        "#!/bin/sh\nexec /usr/local/bin/systemctl reboot\n", "utf-8"
    )
