"""The archive for a maintainer: all useful facts, without secrets and names.

A part passes its own filter first, then the redaction of words (`fleet.doctor.redaction`).
"""

from __future__ import annotations

import io
import json
import platform
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.doctor.redaction import Redactor
from fleet.model.deadline import utc_text
from fleet.model.diagnosis import Diagnosis
from fleet.model.errors import InputError
from fleet.model.plain import to_plain
from fleet.model.text import harmless
from fleet.model.version import VERSION


def doctor_members(diagnoses: Sequence[Diagnosis]) -> dict[str, str]:
    """Return the files of the archive by name: the diagnoses as JSON, and versions of fleet and
    host.
    """
    own = {pair for diagnosis in diagnoses for pair in diagnosis.secrets}
    redactor = Redactor([diagnosis.target for diagnosis in diagnoses], sorted(own))
    host = {
        "fleet": VERSION,
        "python": platform.python_version(),
        "system": platform.platform(),
        "time": utc_text(),
    }
    members = {"host.json": redactor.json(host)}
    for number, diagnosis in enumerate(diagnoses, 1):
        members[f"device-{number}.json"] = redactor.json(to_plain(diagnosis))
        for part, text in kept(diagnosis.parts, redactor).items():
            members[f"device-{number}/raw/{part}.txt"] = text
    return {f"fleet-doctor/{name}": text for name, text in members.items()}


_CAUSES = 3  # causes of each target, in the text for an assistant
_LINES = 6  # lines of evidence for each cause


def for_assistant(diagnoses: Sequence[Diagnosis]) -> str:
    """Return one redacted text of facts, ranked causes, evidence and cures, ready to paste."""
    own = {pair for diagnosis in diagnoses for pair in diagnosis.secrets}
    redactor = Redactor([diagnosis.target for diagnosis in diagnoses], sorted(own))
    task = "Say which cause fits best, what would prove it, and the next command."
    names = "Names, addresses and unknown words are replaced."
    lines = [f"fleet {VERSION} examined a Qualcomm NPU device or its log. {names} {task}"]
    for diagnosis in diagnoses:
        lines += ["", *_for_assistant(diagnosis)]
    return redactor.text("\n".join(map(harmless, lines)))


def _for_assistant(diagnosis: Diagnosis) -> Iterator[str]:
    yield f"target {diagnosis.target}: {diagnosis.verdict}"
    if diagnosis.error:
        yield f"failed step: {diagnosis.error.get('message', '')}"
    for check in diagnosis.checks:
        facts = ", ".join(f"{name}={word}" for name, word in check.facts.items())
        yield f"fact {check.layer} {check.id} {check.status}: {check.text} ({facts})"
    for place, ranked in enumerate(diagnosis.causes[:_CAUSES], 1):
        yield f"cause {place} {ranked.cause.id}, confidence {ranked.confidence:.2f}: {ranked.title}"
        for row in ranked.evidence[:_LINES]:
            yield f"  for: {row.source} {row.line}: {row.text}"
        for twin in ranked.twins:
            test = f"`{twin.command}`" if twin.command else "the log"
            yield f"  against, if it holds: {twin.reading} ({test} shows {twin.cause})"
        for fix in ranked.fixes:
            yield f"  cure: {fix.title} {fix.command}".rstrip()
        yield f"  check: {ranked.verify}"
        yield f"  about: {' '.join(ranked.explanation.split())}"
    for line in diagnosis.suspects:
        yield f"suspicious line {line.line}: {line.text}"
    yield from (f"means: {text}" for text in diagnosis.understood)
    yield from (f"note: {note}" for note in diagnosis.notes)
    yield from (f"open question: {row.text} {row.command}" for row in diagnosis.questions)


def contents(members: Mapping[str, str]) -> Iterable[tuple[str, str, str]]:
    """Return (file, size, possible contents) of each member, to show before the archive is
    written.
    """
    for name, text in members.items():
        path = Path(name)
        part = PARTS.get(path.stem) if path.parent.name == "raw" else None
        yield name, str(len(text.encode())), part.about if part else _about(path)


def _about(path: Path) -> str:
    if path.parent.name == "rungs":
        return "what was said on this rung"
    return {
        "host": "versions of fleet and Python",
        "summary": "the result, to be read first",
        "selftest": "the result as data",
    }.get(path.stem, "the diagnosis as data")


def write_archive(path: Path, members: Mapping[str, str], *, hint: str) -> None:
    """Write texts by name as .tar.gz, without control sequences for terminals.

    Raises InputError.
    """
    try:
        with tarfile.open(path, "w:gz") as archive:
            for name, text in members.items():
                data = harmless(text).encode()
                info = tarfile.TarInfo(name)
                info.size, info.mode = len(data), 0o600
                archive.addfile(info, io.BytesIO(data))
    except OSError as error:
        raise InputError(
            f"fleet cannot write {path}: {error.strerror or error}", hint=hint
        ) from error


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
