"""The stand-in packages of the lab's repositories, one folder for each packaging.

Package names are from docs/sources/deployment.md 6. The device rules are public; each file of
`rules/` names its source.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fleet.lab.debian import LIB, RULES, UNITS, debian
from fleet.lab.debs import Deb
from fleet.lab.elf import fastrpc_library, shared_object

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
