"""Hand-made ELF and PE files, and SDKs and wheels of them: small, and none of it Qualcomm's."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

BUILD = "2.51.0.260929181845"
OTHER = "2.50.40.260831140417"
ARM = "aarch64-oe-linux-gcc11.2"
X86 = "x86_64-linux-clang"


def elf(machine: int = 183, *, build: str = "", aisw: str = "", flags: int = 0) -> bytes:
    """A little-endian ELF64 (ELF32 for Hexagon) with one segment that covers the file."""
    text = f"\0v{build}\0".encode() if build else b""
    text += f"AISW_VERSION: {aisw}\0".encode() if aisw else b""
    if machine == 164:
        size = 52 + 32 + len(text)
        ident = b"\x7fELF\x01\x01\x01" + bytes(9)
        head = struct.pack("<HHIIIIIHHHHHH", 3, machine, 1, 0, 52, 0, flags, 52, 32, 1, 40, 0, 0)
        return ident + head + struct.pack("<8I", 1, 0, 0, 0, size, size, 5, 4) + text
    size = 64 + 56 + len(text)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    head = struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, flags, 64, 56, 1, 64, 0, 0)
    return ident + head + struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 8) + text


def dll(machine: int = 0xAA64, *, build: str = "") -> bytes:
    """A PE with one section that reaches to its end."""
    text = f"v{build}\0".encode()
    head = b"MZ" + bytes(0x3A) + struct.pack("<I", 0x40)
    coff = b"PE\0\0" + struct.pack("<HHIIIHH", machine, 1, 0, 0, 0, 0, 0)
    at = 0x40 + 24 + 40
    section = b".rdata\0\0" + struct.pack("<IIII", 0, 0, len(text), at) + bytes(16)
    return head + coff + section + text


def skel(arch: int, build: str = BUILD) -> bytes:
    """A Hexagon ELF; `arch` as in 0x73."""
    return elf(164, build=build, flags=arch)


def target_files(build: str = BUILD, machine: int = 183) -> dict[str, bytes]:
    """What lib/<target> of an SDK holds, with a v73 stub."""
    version = build.rsplit(".", 1)[0]
    return {
        "libQnnHtp.so": elf(machine, build=build),
        "libQnnHtpV73Stub.so": elf(machine, build=build),
        "libQnnSystem.so": elf(machine),
        "libGenie.so": elf(machine, aisw=version),
        "libQnnHtpNetRunExtensions.so": elf(machine, aisw=version),
    }


def sdk_files(build: str = BUILD, target: str = ARM) -> dict[str, bytes]:
    """An SDK with one target, its tools, a v73 skel, and things that the store leaves out."""
    files = {f"lib/{target}/{name}": data for name, data in target_files(build).items()}
    return files | {
        f"bin/{target}/genie-t2t-run": elf(),
        f"bin/{target}/qnn-net-run": elf(),
        f"bin/{target}/snpe-net-run": elf(),
        f"lib/{target}/libSNPE.so": elf(),
        "lib/hexagon-v73/unsigned/libQnnHtpV73Skel.so": skel(0x73, build),
        "lib/hexagon-v73/unsigned/libSnpeHtpV73Skel.so": skel(0x73, build),
        "docs/index.html": b"no",
        "lib/python/qti/x.py": b"no",
        "LICENSE.pdf": b"terms",
        "sdk.yaml": b"version: 2.51.0\n",
    }


def wheel_files(build: str = BUILD, machine: int = 183) -> dict[str, bytes]:
    """An onnxruntime-qnn wheel: flat, and on x86_64 with libc++ in a folder beside."""
    files = {f"onnxruntime_qnn/{name}": data for name, data in target_files(build, machine).items()}
    files |= {
        "onnxruntime_qnn/__init__.py": b"",
        "onnxruntime_qnn/libonnxruntime_providers_qnn.so": elf(machine),
        "onnxruntime_qnn/Qualcomm_LICENSE.pdf": b"terms",
    }
    if machine == 62:
        files["onnxruntime_qnn.libs/libc++-71bc274c.so.1.0"] = elf(machine)
        del files["onnxruntime_qnn/libQnnHtpV73Stub.so"]
    else:
        files["onnxruntime_qnn/libQnnHtpV73Skel.so"] = skel(0x73, build)
    return files


def write_tree(folder: Path, files: Mapping[str, bytes]) -> Path:
    """The files below `folder`."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def write_zip(path: Path, files: Mapping[str, bytes], prefix: str = "") -> Path:
    """A zip of the files below `prefix`."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(prefix + name, data)
    return path
