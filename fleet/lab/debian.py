"""Stand-ins for Debian's FastRPC packages, written from the facts about the real ones.

Rules, units, group, dependencies and file names are as in the version of a suite; tests/contract
compares them with the archive. Programs, libraries and shells are stand-ins.
"""

from __future__ import annotations

from fleet.lab.debs import Deb
from fleet.lab.elf import fastrpc_library

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
