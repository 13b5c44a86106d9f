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
