"""Small .deb packages and a signed repository for them, built when a lab is created.

The packages are fleet's stand-ins for those that bring FastRPC to real boards. Like the real ones
they contain a library, device rules, a unit and a group. Their description says that they are
emulated.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.lab.elf import fastrpc_library
from fleet.model.extras import loaded

_AR = "{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n"


@dataclass(frozen=True)
class Deb:
    """A package. `files` maps absolute paths to contents; a str is the target of a link."""

    name: str
    version: str
    files: Mapping[str, bytes | str] = field(default_factory=dict)
    depends: str = ""
    recommends: str = ""
    postinst: str = ""
    modes: Mapping[str, int] = field(default_factory=dict)
    architecture: str = "amd64"

    @property
    def file_name(self) -> str:
        """The file name, `name_version_arch.deb`."""
        return f"{self.name}_{self.version}_{self.architecture}.deb"

    @property
    def control(self) -> str:
        """The text of the control file."""
        lines = [
            f"Package: {self.name}",
            f"Version: {self.version}",
            f"Architecture: {self.architecture}",
            "Maintainer: fleet lab <lab@localhost>",
            *([f"Depends: {self.depends}"] if self.depends else []),
            *([f"Recommends: {self.recommends}"] if self.recommends else []),
            "Section: misc",
            "Priority: optional",
            "Description: fleet lab stand-in, emulated",
        ]
        return "\n".join(lines) + "\n"

    def build(self) -> bytes:
        """Build the .deb file. The same input always gives the same bytes."""
        scripts: dict[str, bytes | str] = {"./control": self.control.encode()}
        if self.postinst:
            scripts["./postinst"] = f"#!/bin/sh\nset -e\n{self.postinst}\n".encode()
            scripts["./postrm"] = b"#!/bin/sh\nldconfig\n"
        data = {f".{path}": content for path, content in self.files.items()}
        modes = {f".{path}": mode for path, mode in self.modes.items()}
        modes |= {"./postinst": 0o755, "./postrm": 0o755}
        members = (
            ("debian-binary", b"2.0\n"),
            ("control.tar.gz", _tar(scripts, modes)),
            ("data.tar.gz", _tar(data, modes)),
        )
        out = b"!<arch>\n"
        for name, body in members:
            out += _AR.format(name, 0, 0, 0, "100644", len(body)).encode() + body
            out += b"\n" * (len(body) % 2)
        return out


def _tar(members: Mapping[str, bytes | str], modes: Mapping[str, int]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
        folders = {str(p) for name in members for p in Path(name).parents}
        for folder in sorted(folders):
            info = tarfile.TarInfo("./" if folder == "." else f"./{folder}")
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                tar.addfile(info)
            else:
                info.size, info.mode = len(content), modes.get(name, 0o644)
                tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def openpgp() -> Any:  # noqa: ANN401 - a module
    """Return the module that makes keys and signatures. Raises InputError if it is missing."""
    return loaded("pysequoia", "openpgp", "a bare board of the lab")


def write_repository(folder: Path, debs: list[Deb], key: Any) -> None:  # noqa: ANN401 - of pysequoia
    """Write a flat repository (`deb file:FOLDER ./`): Packages, InRelease and the key."""
    folder.mkdir(parents=True, exist_ok=True)
    stanzas = []
    for deb in debs:
        data = deb.build()
        (folder / deb.file_name).write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        stanzas.append(
            f"{deb.control}Filename: ./{deb.file_name}\nSize: {len(data)}\nSHA256: {digest}\n"
        )
    packages = "\n".join(stanzas).encode()
    (folder / "Packages").write_bytes(packages)
    digest = hashlib.sha256(packages).hexdigest()
    stamp = time.strftime("%a, %d %b %Y %H:%M:%S UTC", time.gmtime())
    release = (
        f"Origin: fleet lab\nLabel: fleet lab (emulated)\nSuite: lab\nCodename: lab\n"
        f"Date: {stamp}\n"
        f"Architectures: amd64\nSHA256:\n {digest} {len(packages)} Packages\n"
    )
    pysequoia = openpgp()
    signed = pysequoia.sign(key.signer(), release.encode(), mode=pysequoia.SignatureMode.CLEAR)
    (folder / "InRelease").write_bytes(signed)


# Stand-ins for Debian's FastRPC packages: rules, units, group, dependencies and names are as in
# the version of a suite; tests/contract compares them with the archive.

VERSIONS = {"trixie-backports": "1.0.7-2~bpo13+1", "sid": "1.0.8-1"}
SHELLS_VERSION = "0~20261019-1"
LIB = "/usr/lib/x86_64-linux-gnu"
_LIBEXEC = "/usr/libexec/x86_64-linux-gnu"
RULES = "/usr/lib/udev/rules.d"
UNITS = "/usr/lib/systemd/system"
_LIBRARIES = ("adsp_default_listener", "adsprpc", "cdsp_default_listener", "cdsprpc",
              "sdsp_default_listener", "sdsprpc")  # fmt: skip
# Units that the nodes of each DSP start, with the command that each unit runs.
_DAEMONS = {
    "adsp": {"adsprpcd": "adsprpcd", "adsprpcd_audiopd": "adsprpcd audiopd"},
    "cdsp": {"cdsprpcd": "cdsprpcd"},
    "cdsp1": {"cdsp1rpcd": "cdsprpcd rootpd cdsp1"},
    "gdsp0": {"gdsp0rpcd": "gdsprpcd rootpd gdsp0"},
    "gdsp1": {"gdsp1rpcd": "gdsprpcd rootpd gdsp1"},
    "sdsp": {"sdsprpcd": "sdsprpcd"},
}
_AUDIO = "adsprpcd_audiopd"
_GROUP = "getent group fastrpc >/dev/null || groupadd --system fastrpc"
_EVENTS = """
for f in $(find /dev -maxdepth 1 -name 'fastrpc-*'); do
  udevadm trigger --subsystem-match=misc --action=add --name-match="$f" || true
done
udevadm trigger --subsystem-match=dma_heap --action=add || true"""


def debian(suite: str = "trixie-backports") -> list[Deb]:
    """Return the packages of the source package fastrpc and the shells that it recommends.

    Raises KeyError for another suite.
    """
    version, sid = VERSIONS[suite], suite == "sid"
    library, shells = "libfastrpc1", "hexagon-dsp-binaries"
    board = f"{shells}-thundercomm-rb3gen2"
    place = "/usr/share/hexagon-dsp/qcm6490/Thundercomm/RB3gen2/dsp"
    names = (f"{place}/cdsp/fastrpc_shell_3", f"{place}/cdsp/fastrpc_shell_unsigned_3")
    support = {
        f"{RULES}/60-fastrpc.rules": _rules(),
        f"{RULES}/59-fastrpc-remoteproc.rules": (
            b'ACTION=="add", SUBSYSTEM=="remoteproc", '
            b'ATTR{name}=="adsp|cdsp|cdsp1|gpdsp0|gpdsp1|slpi", ATTR{state}=="offline", '
            b'ATTR{state}="start"\n'
        ),
        "/usr/lib/sysusers.d/fastrpc.conf": b"g fastrpc - - - -\n",
        **{f"{UNITS}/{name}.service": text for name, text in _units(sid).items()},
    }
    check = "/usr/bin/fastrpc-healthcheck" if sid else f"{_LIBEXEC}/fastrpc/dsp_check"
    programs = [check, *(f"/usr/sbin/{x}dsprpcd" for x in "acgs")]
    return [
        Deb(library, version, _links(".so.1"), postinst="ldconfig"),
        Deb("libfastrpc-dev", version, _links(".so"), depends=f"{library} (= {version})"),
        Deb(
            "fastrpc-support",
            version,
            {**support, **dict.fromkeys(programs, b"#!/bin/sh\nexec sleep infinity\n")},
            depends=f"acl, {library} (= {version})",
            recommends=shells,
            postinst=_GROUP + (_EVENTS if sid else ""),
            modes=dict.fromkeys(programs, 0o755),
        ),
        Deb(shells, SHELLS_VERSION, depends=f"{board} (= {SHELLS_VERSION})"),
        Deb(board, SHELLS_VERSION, dict.fromkeys(names, b"emulated\n")),
    ]


def _links(suffix: str) -> dict[str, bytes | str]:
    """Return the links of all libraries by path.

    With `.so.1` the result also contains the libraries.
    """
    links: dict[str, bytes | str] = {}
    for name in _LIBRARIES:
        file = f"lib{name}.so.1.0.0"
        links[f"{LIB}/lib{name}{suffix}"] = file
        if suffix == ".so.1":
            links[f"{LIB}/{file}"] = fastrpc_library(f"lib{name}.so.1")
    return links


def _rules() -> bytes:
    """Return the udev rules.

    Plain nodes get the group, secure nodes keep their rights; each starts its daemons.
    """
    heap = 'ACTION=="add", SUBSYSTEM=="dma_heap", KERNEL=="system"'
    lines = [f'{heap}, RUN+="/bin/setfacl -m g:fastrpc:rw $env{{DEVNAME}}"']
    for dsp, units in _DAEMONS.items():
        starts = ", ".join(f'ENV{{SYSTEMD_WANTS}}+="{name}.service"' for name in units)
        for end, rights in (("", 'OWNER="root", GROUP="fastrpc", MODE="0640", '), ("-secure", "")):
            match = f'ACTION=="add", SUBSYSTEM=="misc", KERNEL=="fastrpc-{dsp}{end}"'
            lines.append(f'{match}, {rights}TAG+="systemd", {starts}')
    return "".join(f"{line}\n" for line in lines).encode()


def _units(sid: bool) -> dict[str, bytes]:
    """Return the units by file name. They are static, because the udev rules start them."""
    return {
        name: _unit(dsp, program, name == _AUDIO, sid).encode()
        for dsp, units in _DAEMONS.items()
        for name, program in units.items()
    }


def _unit(dsp: str, program: str, audio: bool, sid: bool) -> str:
    nodes = (f"/dev/fastrpc-{dsp}", f"/dev/fastrpc-{dsp}-secure")
    lines = [
        "[Unit]",
        f"Description=FastRPC daemon of {dsp} (fleet lab stand-in, emulated)",
        rf"After=dev-fastrpc\x2d{dsp}.device dev-fastrpc\x2d{dsp}\x2dsecure.device",
        *(f"ConditionPathExists=|{node}" for node in nodes),
        *(["ConditionFirmware=!device-tree-compatible(qcom,qrb2210)"] if audio and sid else []),
        "[Service]",
        "Type=exec",
        f"ExecStart=/usr/sbin/{program}",
        "Restart=on-failure",
        "RestartSec=5",
        *(["RestartPreventExitStatus=2" + ("" if sid else " # AEE_ENOMEMORY")] if audio else []),
        "RestartForceExitStatus=SIGTERM",
    ]
    return "".join(f"{line}\n" for line in lines)
