"""Compared on purpose (--vary) of a package: of a .deb of the archive, and of one of the lab."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet.lab.debs import Deb

TEXTS = ("/usr/lib/udev/rules.d/", "/usr/lib/systemd/system/", "/usr/lib/sysusers.d/")
CONF = "/usr/share/hexagon-dsp/conf.d/"
_TRIPLE = re.compile(r"/(?:aarch64|x86_64)-linux-gnu/")


@dataclass(frozen=True)
class Package:
    """`files` maps a path to its text (rules, units, sysusers), the target of a link, or ""."""

    name: str
    version: str
    relations: Mapping[str, str]
    files: Mapping[str, str]
    postinst: str = ""


def of_archive(path: Path) -> Package:
    """A .deb file, read by dpkg-deb."""
    fields = dict(
        line.split(": ", 1) for line in _said(path, "-f").decode().splitlines() if line[0] != " "
    )
    files = {}
    with tarfile.open(fileobj=io.BytesIO(_said(path, "--fsys-tarfile"))) as tar:
        for member in tar:
            name = member.name.removeprefix(".")
            if member.issym():
                files[name] = member.linkname
            elif member.isfile():
                body = tar.extractfile(member) if name.startswith((*TEXTS, CONF)) else None
                files[name] = body.read().decode() if body else ""
    with tarfile.open(fileobj=io.BytesIO(_said(path, "--ctrl-tarfile"))) as tar:
        script = tar.extractfile("./postinst") if "./postinst" in tar.getnames() else None
        postinst = script.read().decode() if script else ""
    return _package(fields["Package"], fields["Version"], fields, files, postinst)


def of_lab(deb: Deb) -> Package:
    """A package of the lab's repositories."""
    fields = {"Depends": deb.depends, "Recommends": deb.recommends}
    files = {}
    for path, content in deb.files.items():
        text = content if isinstance(content, str) else ""
        if isinstance(content, bytes) and path.startswith(TEXTS):
            text = content.decode()
        files[path] = text
    return _package(deb.name, deb.version, fields, files, deb.postinst)


def _package(
    name: str, version: str, fields: Mapping[str, str], files: Mapping[str, str], postinst: str
) -> Package:
    kinds = ("Depends", "Pre-Depends", "Recommends", "Conflicts", "Breaks", "Replaces", "Provides")
    relations = {kind: fields[kind] for kind in kinds if fields.get(kind)}
    same = {_TRIPLE.sub("/TRIPLE/", path): text for path, text in files.items()}
    return Package(name, version, relations, same, postinst)


def _said(path: Path, what: str) -> bytes:
    return subprocess.run(["dpkg-deb", what, str(path)], capture_output=True, check=True).stdout
