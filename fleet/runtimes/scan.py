"""A scanner for libraries: machine, Hexagon arch, build id, version; and a check that a runtime has
one build.

The places were measured on QAIRT 2.47 to 2.51 (docs/sources/qairt.md 1). The build id
`v2.51.0.260929181845` is in libQnnHtp, Prepare, every stub and skel. `AISW_VERSION: 2.51.0` is also
in libGenie and NetRunExtensions; libQnnSystem has neither. The Hexagon arch is in the low byte of
ELF e_flags. A truncated library ends a process with SIGBUS, so it is refused here.
"""

from __future__ import annotations

import hashlib
import mmap
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fleet.model.errors import RuntimeStoreError
from fleet.model.finding import Finding
from fleet.model.runtime import BROUGHT, Library, Runtime, RuntimeSource, no_runtime

# the ELF header, and the PE header of every DLL seen so far, are in the first page
HEADER_BYTES = 4096
_BUILD_ID = re.compile(rb"v(\d{1,3}\.\d{1,4}\.\d{1,4}\.\d{12})(?!\d)")
_AISW = re.compile(rb"AISW_VERSION: ?(\d{1,3}\.\d{1,4}\.\d{1,4})")
_ELF_MACHINES = {62: "x86_64", 183: "aarch64", 164: "hexagon"}
_PE_MACHINES = {0x8664: "win-x86_64", 0xAA64: "win-arm64"}
_ELF_NAME = re.compile(r"\.so(\.[0-9.]+)?$")
_PE_NAME = re.compile(r"\.(dll|exe)$", re.IGNORECASE)


def scan_file(path: Path, name: str) -> Library:
    """Hash and scan one file; `name` is its path in the runtime. About 250 MB/s at worst.

    Raises RuntimeStoreError with the file if a .so is not ELF, a .dll is not PE, or the file is
    shorter than its header says.
    """
    size = path.stat().st_size
    if size == 0:
        raise _damaged(name, "the file is empty")
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        machine, arch = identify(data[:HEADER_BYTES], name)
        _check_length(data, name)
        build = _BUILD_ID.search(data)
        aisw = _AISW.search(data)
        return Library(
            path=name,
            size=size,
            sha256=hashlib.sha256(data).hexdigest(),
            machine=machine,
            hexagon_arch=arch,
            build_id=build[1].decode() if build else None,
            aisw_version=aisw[1].decode() if aisw else None,
        )


def identify(head: bytes, name: str) -> tuple[str, str | None]:
    """Return machine and Hexagon arch (`v73`) from the first bytes of a file.

    The machine is `other` for an unknown CPU and for a file that is no library or program. The arch
    is None unless the machine is hexagon. Raises RuntimeStoreError for a .so or .dll with an
    invalid header.
    """
    try:
        if head[:4] == b"\x7fELF":
            (machine,) = struct.unpack_from("<H", head, 18)
            (flags,) = struct.unpack_from("<I", head, 48 if head[4] == 2 else 36)
            known = _ELF_MACHINES.get(machine, "other")
            return known, f"v{flags & 0xFF:x}" if known == "hexagon" else None
        if head[:2] == b"MZ":
            (start,) = struct.unpack_from("<I", head, 0x3C)
            (machine,) = struct.unpack_from("<H", head, start + 4)
            return _PE_MACHINES.get(machine, "other"), None
    except (struct.error, IndexError) as error:
        raise _damaged(name, "the file is truncated in its header") from error
    if _ELF_NAME.search(name):
        raise _damaged(name, "the file is not an ELF file")
    if _PE_NAME.search(name):
        raise _damaged(name, "the file is not a Windows library")
    return "other", None


def _check_length(data: mmap.mmap, name: str) -> None:
    try:
        end = _elf_end(data) if data[:4] == b"\x7fELF" else 0
        if data[:2] == b"MZ":
            end = _pe_end(data)
    except struct.error as error:
        raise _damaged(name, "the file is truncated in its header") from error
    if end > len(data):
        raise _damaged(
            name, f"the file is truncated: it has {len(data)} bytes, but its header describes {end}"
        )


class ElfSegment(NamedTuple):
    """A program header: `size` bytes at `offset` of the file, loaded at `address`."""

    kind: int
    offset: int
    address: int
    size: int


def elf_segments(data: mmap.mmap | bytes) -> Iterator[ElfSegment]:
    """Yield the program headers of an ELF file. Raises struct.error for a truncated table."""
    wide = data[4] == 2
    (start,) = struct.unpack_from("<Q" if wide else "<I", data, 32 if wide else 28)
    length, count = struct.unpack_from("<HH", data, 54 if wide else 42)
    for index in range(count):
        form = "<I4xQQ8xQ" if wide else "<III4xI"
        yield ElfSegment(*struct.unpack_from(form, data, start + index * length))


def _elf_end(data: mmap.mmap) -> int:
    """Return the end of the last byte that the segment and section tables of an ELF file
    mention.
    """
    wide = data[4] == 2
    (start,) = struct.unpack_from("<Q" if wide else "<I", data, 40 if wide else 32)
    length, count = struct.unpack_from("<HH", data, 58 if wide else 46)
    ends = (segment.offset + segment.size for segment in elf_segments(data))
    return max(int(start + length * count), *ends, 0)


def _pe_end(data: mmap.mmap) -> int:
    """Return the end of the last byte that the section table of a PE file mentions."""
    (start,) = struct.unpack_from("<I", data, 0x3C)
    (sections,) = struct.unpack_from("<H", data, start + 6)
    (optional,) = struct.unpack_from("<H", data, start + 20)
    end = 0
    for index in range(sections):
        length, offset = struct.unpack_from("<II", data, start + 24 + optional + index * 40 + 16)
        end = max(end, offset + length)
    return int(end)


def _damaged(name: str, why: str) -> RuntimeStoreError:
    return RuntimeStoreError(
        f"the library {name} is damaged: {why}",
        hint="download the SDK or wheel again, or extract it again",
    )


_CURE = "extract the SDK again into an empty folder, so that files of two QAIRT versions do not mix"
_SOURCE = "docs/sources/qairt.md 1, 6"
_BACKENDS = ("libQnnHtp.so", "QnnHtp.dll")
_ONE_RUN = re.compile(r"Htp|Genie")  # backend, Prepare, stubs, skels, NetRunExtensions, Genie


def build_of(libraries: Sequence[Library]) -> Library | None:
    """Return the file that defines the build, None if no file has a build id.

    That is libQnnHtp, else an HTP or Genie file, else any file with a build id.
    """
    known = sorted(
        (item for item in libraries if item.build_id),
        key=lambda item: _ONE_RUN.search(item.name) is None,
    )
    return next((item for item in known if item.name in _BACKENDS), known[0] if known else None)


def check_consistent(libraries: Sequence[Library]) -> list[Finding]:
    """Return a finding for every file of another build than libQnnHtp; [] if all agree.

    Mixed stub, skel and backend fail with 1008 or 14001. From QAIRT 2.48.40 on, the stub requests a
    symbol of the skel with the version in its name, so a mix cannot work (docs/sources/qairt.md 1;
    `Stub lib id mismatch` in section 6).

    HTP and Genie files are refused. Others (Gpu, Saver, Ir) take no part in an HTP run and give a
    warning. Files without a version (libQnnSystem, libc++) are ignored.
    """
    reference = build_of(libraries)
    if reference is None or reference.build_id is None:
        return []
    return [
        finding
        for item in libraries
        if (finding := _against(item, reference, reference.build_id)) is not None
    ]


def _against(item: Library, reference: Library, build: str) -> Finding | None:
    version = build.rsplit(".", 1)[0]
    if item.build_id is not None:
        have, need = item.build_id, build
    elif item.aisw_version is not None:
        have, need = item.aisw_version, version
    else:
        return None
    if have == need:
        return None
    return Finding(
        rule="one-build",
        severity="refuse" if _ONE_RUN.search(item.name) else "warn",
        message=f"{item.path} is from QAIRT {have}, but {reference.path} is from {build}",
        have=have,
        need=need,
        cure=_CURE,
        source=_SOURCE,
    )


def require_consistent(libraries: Sequence[Library], where: str) -> None:
    """Raise RuntimeStoreError with one mixed pair and the number of others.

    A pair with two full build ids is preferred, because it is the most informative.
    """
    problems = [item for item in check_consistent(libraries) if item.refuses]
    if not problems:
        return
    more = f" (and {len(problems) - 1} more files)" if len(problems) > 1 else ""
    clearest = max(problems, key=lambda item: item.have.count("."))
    raise RuntimeStoreError(f"{where} mixes QAIRT versions: {clearest.message}{more}", hint=_CURE)


def carried_runtime(folder: Path | None, target: str) -> Runtime:
    """Return the QAIRT that a program has in one flat folder, for the pre-flight only.

    Without one, return the empty runtime. Raises RuntimeStoreError for a damaged library.
    """
    none = no_runtime(target)
    paths = sorted(folder.glob("lib*.so*")) if folder is not None else []
    libraries = tuple(scan_file(path, path.name) for path in paths)
    witness = build_of(libraries)
    if folder is None or witness is None or witness.build_id is None:
        return none
    build = witness.build_id
    skels = {item.hexagon_arch for item in libraries if item.name.endswith("Skel.so")}
    return replace(
        none,
        id=f"qairt-{build} of the program",
        version=build.rsplit(".", 1)[0],
        build_id=build,
        root=folder,
        hexagon_archs=tuple(sorted(filter(None, skels))),
        source=RuntimeSource(BROUGHT, str(folder)),
        libraries=libraries,
    )
