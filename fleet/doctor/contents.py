"""The permitted contents of each part of an archive for a maintainer; everything else is left out.

A part passes its own filter first, then the redaction of words (`fleet.doctor.redaction`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fleet.doctor.redaction import Redactor

_RULES_HEAD = re.compile(r"# /\S+\.rules")
_SOC0 = {"machine", "family", "soc_id", "revision", "build_id", "image_version", "image_variant"}
_SOC0 |= {"platform_version", "platform_subtype", "hw_platform", "pmic_model", "pmic_die_revision"}
_OS = {"NAME", "PRETTY_NAME", "ID", "ID_LIKE", "VERSION", "VERSION_ID", "VERSION_CODENAME"}
_DEVICE = {"DEVPATH", "DEVNAME", "MAJOR", "MINOR", "SUBSYSTEM", "TAGS", "CURRENT_TAGS", "MODE"}
_CONFIG = re.compile(r"# CONFIG_\w+ is not set|CONFIG_\w+=[ymn\d]+")
_CMDLINE = re.compile(r"[\w.-]+(?:=.*)?")
_PARAMETERS = re.compile(
    r"(?:console|earlycon|quiet|ro|rw|rootwait|root|rootfstype|init|panic|loglevel|splash"
    r"|clk_ignore_unused|pd_ignore_unused|iommu\w*|arm-smmu\w*|cma|swiotlb|mem|maxcpus|nokaslr"
    r"|pcie_\w+|cpuidle\.\w+|systemd\.\w+|kpti|mitigations|video|firmware_class\.path"
    r"|androidboot\.(?:hardware|bootdevice|selinux|slot_suffix|verifiedbootstate|vbmeta\.\w+))"
)
_PROPERTY = re.compile(
    r"\[ro\.(?:soc|board|hardware|vendor\.qti|product|vendor\.build|build)\.[\w.]+\]: \[.*\]"
    r"|\[ro\.hardware\]: \[.*\]"
)
_PRIVATE_PROPERTY = re.compile(
    r"serial|user|host|imei|fingerprint|description|display\.id|name\]|uuid"
)
_MOUNTS = re.compile(
    r"/(?:proc|sys|dev|run|tmp|boot|efi|etc|usr|var|opt|home|root|data|vendor|system|product|odm"
    r"|apex|metadata|cache|persist|lib|firmware)?(?:/(?:log|lib|tmp|cache|firmware|firmware_mnt|efi"
    r"|dsp|shm|pts|mqueue|hugepages|local|kernel|fs|cgroup|security|debug|tracing|config|bpf"
    r"|fuse|connections|pstore|efivars|lock|media|share|hexagon-dsp))*"
)
_IDENTITY = {  # keys of the probe and of facts, with the kind of their placeholder
    "hostname": "host",
    "boot_id": "id",
    "machine_id": "id",
    "serial_number": "id",
    "serialno": "id",
    "ro.serialno": "id",
    "ro.boot.serialno": "id",
    "fingerprint": "id",
    "home": "path",
}


@dataclass(frozen=True)
class ArchivePart:
    """A part of an archive: its permitted contents in words for the user, and its filter."""

    about: str
    kept: Callable[[str, Redactor], str] = lambda text, _: text


def _lines(wanted: Callable[[str], bool]) -> Callable[[str, Redactor], str]:
    def kept(text: str, _: Redactor) -> str:
        return "\n".join(line for line in text.splitlines() if wanted(line)) + "\n"

    return kept


def _rules(text: str, _: Redactor) -> str:
    lines = []
    for line in text.splitlines():
        if _RULES_HEAD.fullmatch(line):
            lines.append(line)
        elif line.strip() and not line.lstrip().startswith("#"):
            lines.append(re.sub(r"\s#.*", "", line))
    return "\n".join(lines) + "\n"


def _uname(text: str, redactor: Redactor) -> str:
    words = text.split()
    if len(words) > 1:
        words[1] = redactor.place("host", words[1])
    return " ".join(words) + "\n"


def _cmdline(text: str, _: Redactor) -> str:
    words = [word for word in text.split() if _CMDLINE.fullmatch(word)]
    return " ".join(w for w in words if _PARAMETERS.fullmatch(w.partition("=")[0])) + "\n"


def _mounts(text: str, redactor: Redactor) -> str:
    """Return the file systems with place, kind and options, without places that the user named."""
    lines = []
    for line in text.splitlines():
        source, place, kind, options = [*line.split(), "", "", "", ""][:4]
        if not kind:
            continue
        if not re.fullmatch(r"[a-z]\w{0,15}|/dev/(?:sd[a-z]\d*|mmcblk\d(?:p\d+)?|dm-\d+)", source):
            source = redactor.place("disk", source)
        if not _MOUNTS.fullmatch(place):
            place = redactor.place("mount", place)
        words = [word for word in options.split(",") if "=" not in word or word[:5] == "mode="]
        lines.append(f"{source} {place} {kind} {','.join(words)}")
    return "\n".join(lines) + "\n"


def _probe(text: str, redactor: Redactor) -> str:
    lines = []
    for line in text.split("\n"):
        key, tab, value = line.partition("\t")
        kind = _IDENTITY.get(key)
        lines.append(f"{key}\t{redactor.place(kind, value)}" if tab and kind else line)
    return "\n".join(lines)


def _facts(text: str, redactor: Redactor) -> str:
    return json.dumps(of_facts(json.loads(text), redactor))


def of_facts(value: Any, redactor: Redactor, key: str = "") -> Any:  # noqa: ANN401 - JSON
    """Return facts without the values that identify the device or its user."""
    if isinstance(value, Mapping):
        if key == "user":
            own = str(value.get("name") or "")
            place = redactor.place("user", own)
            value = {
                key: [place if text == own else text for text in item]
                if isinstance(item, list)
                else item
                for key, item in {**value, "name": place or None}.items()
            }
        return {name: of_facts(item, redactor, str(name)) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [of_facts(item, redactor) for item in value]
    if isinstance(value, str) and key in _IDENTITY:
        return redactor.place(_IDENTITY[key], value)
    return value


def _keyed(keys: set[str], sep: str) -> Callable[[str, Redactor], str]:
    return _lines(lambda line: line.partition(sep)[0].strip() in keys)


PARTS: dict[str, ArchivePart] = {
    "facts": ArchivePart("facts without names, ids and home folders", _facts),
    "probe": ArchivePart("the probe's answer, the same left out", _probe),
    "uname": ArchivePart("kernel and machine", _uname),
    "os-release": ArchivePart("name and version of the system", _keyed(_OS, "=")),
    "cmdline": ArchivePart("listed kernel parameters", _cmdline),
    "kernel-config": ArchivePart(
        "kernel options as y, m, n", _lines(lambda x: bool(_CONFIG.fullmatch(x)))
    ),
    "soc0": ArchivePart("chip, without serial numbers", _keyed(_SOC0, ":")),
    "device-tree": ArchivePart("compatible and model"),
    "nodes": ArchivePart("device nodes, mode, group"),
    "udevadm": ArchivePart(
        "paths, numbers and tags of the nodes",
        _lines(lambda x: x[:2] == "E:" and x[2:].partition("=")[0].strip() in _DEVICE),
    ),
    "rules": ArchivePart("udev rules without comments", _rules),
    "packages": ArchivePart("packages and versions"),
    "policy": ArchivePart("what apt offers of FastRPC"),
    "libraries": ArchivePart("names and sizes of libraries"),
    "remoteproc": ArchivePart("DSPs, state, firmware file"),
    "firmware": ArchivePart("firmware files, sizes, versions"),
    "shells": ArchivePart("files of the DSP"),
    "units": ArchivePart("state of cdsprpcd"),
    "thermal": ArchivePart("sensors"),
    "mounts": ArchivePart("file systems and options", _mounts),
    "selinux": ArchivePart("mode and context"),
    "getprop": ArchivePart(
        "listed properties",
        _lines(
            lambda x: (
                bool(_PROPERTY.fullmatch(x))
                and not _PRIVATE_PROPERTY.search(x.partition("]:")[0] + "]")
            )
        ),
    ),
    "tools": ArchivePart("versions of tools"),
    "log": ArchivePart("lines of the log on FastRPC and DSPs"),
    "parts": ArchivePart("why the device gave no texts"),
}


def kept(parts: Mapping[str, str], redactor: Redactor) -> dict[str, str]:
    """Return name → text that may be published. A part that is not in the table is left out."""
    texts = {}
    for name, text in parts.items():
        if name not in PARTS:
            continue
        own = PARTS[name].kept(text, redactor)
        facts = name == "facts"
        if own.strip():
            texts[name] = redactor.json(json.loads(own)) if facts else redactor.text(own)
    return texts
