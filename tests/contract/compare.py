"""Differences between a real package and ours, and between its rules and our table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from fleet.model.system import RuleSeen
from fleet.ops.system.access import CDSP, HEAP, ruled
from fleet.ops.system.packaging import Packaging
from tests.contract.package import TEXTS, Package

# What a stand-in has no need of, with the reason.
LEFT_OUT = {
    "libc6": "the programs are scripts",
    "libyaml-0-2": "the programs are scripts",
    "libbsd0": "the library is a stand-in",
    "systemd": "a lab board has a stand-in for systemctl, and getent for systemd-sysusers",
}
_NOT_READ = ("/usr/share/doc/", "/usr/share/man/", "/usr/share/lintian/", "/usr/include/")
_WORDS = {"Description", "Documentation"}


def differences(real: Package, ours: Package) -> list[str]:
    """`what: there X, here Y`, one each; none when ours says the same."""
    found = _pair("version", real.version, ours.version)
    for kind in sorted({*real.relations, *ours.relations}):
        there, here = (_relations(one.relations.get(kind, "")) for one in (real, ours))
        found += _sets(kind, there, here)
    there, here = ({*_paths(one.files)} for one in (real, ours))
    found += _sets("file", there, here)
    for path in sorted(path for path in there & here if path.startswith(TEXTS)):
        lines, own = _statements(path, real), _statements(path, ours)
        found += _sets(path, {*lines}, {*own}) or _pair(f"order of {path}", lines, own)
    for path in sorted(there & here - {path for path in there if path.startswith(TEXTS)}):
        found += _pair(path, real.files[path], ours.files[path])
    found += _sets("postinst", _acts(real.postinst), _acts(ours.postinst))
    return [f"{real.name} {line}" for line in found]


def of_table(every: Iterable[Package], row: Packaging) -> list[str]:
    """What packages give, against what a row of fastrpc.yaml promises of them."""
    packages = {package.name: package for package in every}
    files = {path: text for package in packages.values() for path, text in package.files.items()}
    rules = [
        RuleSeen(path, tuple(text.splitlines()))
        for path, text in files.items()
        if path.startswith(TEXTS[0])
    ]
    node, secure, heap = (ruled(path, rules) for path in (*CDSP[:2], HEAP[0]))
    gives = row.at(next(iter(packages.values())).version)
    units = {path.rpartition("/")[2] for path in files if path.startswith(TEXTS[1])}
    groups = {
        line.split()[1]
        for path, text in files.items()
        if path.startswith(TEXTS[2])
        for line in text.splitlines()
        if line.startswith("g")
    }
    found = _sets("packages", {*row.packages} & {*packages}, {*row.packages})
    found += _pair("rules", node is not None, gives.rules)
    found += _pair("group", node and node[0], gives.group)
    found += _pair("node", node and node[1], gives.node)
    found += _pair("secure", secure and secure[1], gives.secure)
    found += _pair("heap", heap is not None, gives.heap)
    found += [] if row.unit in units else _pair("unit", sorted(units), row.unit)
    found += (
        [] if {gives.group} - {None} <= groups else _pair("sysusers", sorted(groups), gives.group)
    )
    return [f"{row.id} {line}" for line in found]


def shells(package: Package, folders: Iterable[str]) -> list[str]:
    """Folders of DSP binaries of a package that none of our patterns finds."""
    patterns = [re.compile(re.escape(one).replace(r"\*", "[^/]+") + "$") for one in folders]
    seen = [path for path in package.files if path.endswith("/dsp/cdsp")]
    seen += [
        path.rpartition("/")[0] for path in package.files if "/fastrpc_shell_unsigned_3" in path
    ]
    lost = [path for path in seen if not any(pattern.match(path) for pattern in patterns)]
    return [f"{package.name} shells: there {path}" for path in lost] or (
        [] if seen else [f"{package.name} shells: no dsp/cdsp"]
    )


def machines(package: Package) -> set[str]:
    """Models of boards that its configuration names."""
    text = "\n".join(text for path, text in package.files.items() if "/conf.d/" in path)
    return set(re.findall(r"^  (\S[^\n]*):$", text, re.MULTILINE))


def _pair(what: str, there: object, here: object) -> list[str]:
    return [] if there == here else [f"{what}: there {there}, here {here}"]


def _sets(what: str, there: set[str], here: set[str]) -> list[str]:
    return [
        *(f"{what}: there {name}, here not" for name in sorted(there - here)),
        *(f"{what}: here {name}, there not" for name in sorted(here - there)),
    ]


def _relations(text: str) -> set[str]:
    every = {" ".join(part.split()) for part in text.split(",") if part.strip()}
    return {one for one in every if one.split()[0] not in LEFT_OUT}


def _paths(files: Mapping[str, str]) -> list[str]:
    return [path for path in files if not path.startswith(_NOT_READ)]


def _statements(path: str, package: Package) -> list[str]:
    """Lines that mean something, without what is for people and the blanks between words."""
    found, section = [], ""
    for line in package.files[path].splitlines():
        words = " ".join(line.split())
        if not words or words.startswith("#") or words.partition("=")[0] in _WORDS:
            continue
        if words.startswith("["):
            section = words
        found.append(words if words == section else f"{section}{words}")
    return sorted(found) if path.endswith(".service") else found


def _acts(script: str) -> set[str]:
    """Events that a postinst makes, and units that it enables."""
    joined = script.replace("\\\n", " ")
    events = re.findall(r"udevadm (trigger(?: --\S+)+)", joined)
    return {*events, *re.findall(r"deb-systemd-helper (?:enable|unmask) \S+", joined)}
