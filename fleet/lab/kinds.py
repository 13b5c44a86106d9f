"""The kinds of boards and phones: which of them can run on this computer, and their trees.

A bare board has no FastRPC, but a package repository to install it from: a folder on the board,
signed with a key that is then deleted. Its userland is built once from the shared one and cached.
Package names are from docs/sources/deployment.md 6. The device rules are public; each file of
`rules/` names its source.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from fleet.lab import arm64, kernel
from fleet.lab.adbserver import adb_program
from fleet.lab.androidroot import android_root, python_layer
from fleet.lab.archive import BUILD_SECONDS
from fleet.lab.debs import LIB, RULES, UNITS, Deb, debian, openpgp, write_repository
from fleet.lab.elf import fastrpc_library, shared_object
from fleet.lab.folder import PHONES
from fleet.lab.host import has_board_programs
from fleet.lab.namespace import can_unshare
from fleet.lab.profiles import phone_profile as known_phone
from fleet.lab.rootfs import building, built_once, require, rootfs, run_inside
from fleet.lab.tools import board_programs
from fleet.model.errors import InputError, LabError

_MAKE_GROUP = "getent group fastrpc >/dev/null || groupadd --system fastrpc\nldconfig"
# qualcomm/fastrpc debian/fastrpc-support.postinst at 2e290dfd626baadf9b80c75cc3935e35130185f9
_MAKE_USER = (
    "getent passwd fastrpc >/dev/null || useradd --system -g fastrpc -M -d /nonexistent fastrpc"
)
_UNIT = b"""[Unit]
Description=cDSP RPC daemon (fleet lab stand-in, emulated)
[Service]
ExecStart=/usr/bin/sleep infinity
[Install]
WantedBy=multi-user.target
"""


def _device_rules(name: str) -> bytes:
    return (files("fleet.lab") / "rules" / f"{name}.rules").read_bytes()


def _library(name: str, version: str = "1") -> dict[str, bytes | str]:
    soname = f"{name}.{version}"
    return {f"{LIB}/{soname}.0.0": fastrpc_library(soname), f"{LIB}/{soname}": f"{soname}.0.0"}


def _development(name: str) -> dict[str, bytes | str]:
    return {f"{LIB}/{name}": f"{name}.1"}


def ubuntu_ppa() -> list[Deb]:
    """Return the packages of the Qualcomm IoT PPA. libqnn1 and qnn-tools are the trap of mixed
    installs.
    """
    return [
        Deb(
            "qcom-fastrpc1",
            "1.0.2-0ubuntu1",
            {
                **_library("libcdsprpc.so"),
                **_library("libadsprpc.so"),
                f"{RULES}/60-qcom-fastrpc1.rules": _device_rules("ubuntu-ppa"),
                f"{UNITS}/cdsprpcd.service": _UNIT,
                "/usr/lib/sysusers.d/qcom-fastrpc1.conf": b"g fastrpc -\n",
            },
            postinst=f"{_MAKE_GROUP}\n{_MAKE_USER}",
        ),
        Deb(
            "qcom-fastrpc-dev",
            "1.0.2-0ubuntu1",
            {**_development("libcdsprpc.so"), **_development("libadsprpc.so")},
            depends="qcom-fastrpc1 (= 1.0.2-0ubuntu1)",
        ),
        Deb(
            "qcom-libdmabufheap",
            "1.1.0-0ubuntu1",
            _library("libdmabufheap.so"),
            postinst="ldconfig",
        ),
        Deb(
            "qcom-libdmabufheap-dev",
            "1.1.0-0ubuntu1",
            _development("libdmabufheap.so"),
            depends="qcom-libdmabufheap",
        ),
        Deb("libqnn1", "2.31.0-0ubuntu1", {"/usr/lib/libQnnHtp.so": shared_object("libQnnHtp.so")}),
        Deb("qnn-tools", "2.31.0-0ubuntu1", depends="libqnn1"),
    ]


def radxa() -> list[Deb]:
    """Return packages with Radxa's names.

    The effect of Radxa's rules is unknown; upstream's are used.
    """
    return [
        Deb("libcdsprpc1", "0.1.3", _library("libcdsprpc.so"), postinst="ldconfig"),
        Deb(
            "fastrpc",
            "0.1.3",
            {f"{RULES}/71-fastrpc.rules": _device_rules("radxa")},
            depends="libcdsprpc1",
        ),
        Deb("fastrpc-test", "0.1.3", depends="fastrpc"),
    ]


REPOSITORIES = {"ubuntu-qcom-iot/qcom-ppa": ubuntu_ppa, "debian": debian, "radxa": radxa}


def repack(tree: Path, name: str) -> Deb:
    """Return a package of the userland as a .deb. Raises KeyError if it is not installed there."""
    fields = _status(tree, name)
    lists = [*(tree / "var/lib/dpkg/info").glob(f"{name}.list")]
    lists += (tree / "var/lib/dpkg/info").glob(f"{name}:*.list")
    files: dict[str, bytes | str] = {}
    modes: dict[str, int] = {}
    for path in lists[0].read_text("utf-8").splitlines():
        source = tree / path.lstrip("/")
        if source.is_symlink():
            files[path] = str(source.readlink())
        elif source.is_file():
            files[path] = source.read_bytes()
            modes[path] = source.stat().st_mode & 0o777
    return Deb(
        name,
        fields["Version"],
        files,
        depends=fields.get("Depends", ""),
        modes=modes,
        postinst="ldconfig",
        architecture=fields["Architecture"],
    )


def _status(tree: Path, name: str) -> dict[str, str]:
    text = (tree / "var/lib/dpkg/status").read_text("utf-8")
    for stanza in text.split("\n\n"):
        lines = [line for line in stanza.splitlines() if line[:1] not in {" ", ""}]
        fields = dict(line.split(": ", 1) for line in lines if ": " in line)
        if fields.get("Package") == name:
            return fields
    raise KeyError(name)


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
    for name in ("kinds.py", "debs.py", "elf.py"):
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
    common = [repack(tree, name) for name in _REMOVED]
    key = openpgp().Tsk.generate("fleet lab, emulated <lab@localhost>")
    for place, debs in REPOSITORIES.items():
        write_repository(tree / REPOSITORY.lstrip("/") / place, [*debs(), *common], key)
    certificate = str(key.extract_certificate())
    (tree / KEY.lstrip("/")).write_text(certificate, "utf-8")
    for name in ("udevadm", "systemctl"):
        (tree / "usr/local/bin" / name).write_bytes(_stand_in(name))
    (tree / "usr/local/sbin/reboot").write_text(
        "#!/bin/sh\nexec /usr/local/bin/systemctl reboot\n", "utf-8"
    )


KINDS = ("auto", "namespace", "user", "kernel", "arm64")
AS_ROOT = "sudo fleet lab up --kind namespace"
_HERE = "fleet lab up (boards of this machine's own kind)"
_OWN_GROUND: dict[
    str, tuple[Callable[[], str], dict[str, str], Callable[[], Path], Callable[[], str]]
] = {  # reason why they cannot run here, packages, ground, command to type instead
    "arm64": (arm64.can_run_arm64, arm64.NEEDS, arm64.arm64_tree, lambda: _HERE),
    "kernel": (
        kernel.can_run_kernel, kernel.NEEDS, kernel.kernel_disk,
        lambda: _HERE if os.geteuid() == 0 else "sudo fleet lab up --kernel",
    ),
}  # fmt: skip


def choose_phones(kind: str, profiles: str) -> str:
    """Return the kind of phones that can run here, and prepare its ground. Raises LabError."""
    if kind not in {"auto", *PHONES}:
        raise LabError(
            f"'{kind}' is not a kind of lab phone", hint="use one of: auto, " + ", ".join(PHONES)
        )
    adb_program()
    why = can_unshare() if kind != "phone-emulator" else "asked for"
    if kind == "phone" and why:
        raise LabError(
            f"lab phones with a real adbd cannot run on this computer: {why}",
            hint="fleet lab up --phone-kind phone-emulator",
        )
    if why:
        return "phone-emulator"
    android_root()
    if any(known_phone(name).python3 for name in profiles.split(",")):
        python_layer()
    return "phone"


def _own_ground(kind: str) -> None:
    """Build the ground of this kind of boards. Raises InputError if the kind cannot run here."""
    why_not, needs, ground, instead = _OWN_GROUND[kind]
    if why := why_not():
        raise InputError(
            f"lab boards of the kind {kind} cannot run on this computer: {why}", hint=instead()
        )
    try:
        require(needs)
    except LabError as error:
        raise InputError(
            f"lab boards of the kind {kind} cannot run on this computer: {error.message}",
            hint=error.hint,
        ) from error
    ground()


def choose_boards(kind: str) -> str:
    """Return the kind of boards that can run here, and prepare its ground.

    Raises LabError. Raises InputError for a kind that cannot run on this computer.
    """
    if kind in _OWN_GROUND:
        _own_ground(kind)
        return kind
    if kind not in {"auto", "namespace", "user"}:
        raise LabError(
            f"'{kind}' is not a kind of lab board", hint="use one of: " + ", ".join(KINDS)
        )
    why = can_unshare() if kind != "user" else ""
    if kind == "namespace" and why:
        raise LabError(
            f"lab boards of the kind namespace cannot run on this computer: {why}",
            hint="fleet lab up --kind user",
        )
    if kind == "namespace" or (kind == "auto" and not why):
        try:
            rootfs()
        except LabError:
            if kind == "namespace" or not has_board_programs():
                raise
            return "user"
        return "namespace"
    board_programs()
    return "user"


def ground(kind: str, *, bare: bool) -> Path:
    """Return the tree or disk that all boards of a kind share. Raises LabError."""
    if kind == "namespace":
        return bare_tree() if bare else rootfs()
    grounds = {"kernel": kernel.kernel_disk, "arm64": arm64.arm64_tree}
    return grounds[kind]() if kind in grounds else Path()


def phone_ground(profile: str) -> Path:
    """Return the layers of a phone's root as overlayfs expects them, upper layer first."""
    root = android_root()
    python3 = known_phone(profile).python3
    return Path(f"{python_layer()}:{root}") if python3 else root
