"""An arm64 board's files without an arm64 kernel: the lab's Debian tree under qemu-user.

A board is a folder that lies over it, read-only (overlayfs), entered in a mount namespace of its
own with its own /dev. Nothing has to be registered with the kernel: qemu is started by name.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from fleet.lab.arm64 import NEEDS, arm64_tree
from fleet.lab.host import find
from fleet.lab.namespace import CPU
from fleet.runtimes.select import select_files
from tests.support_runtime import ARM, NEW, cached_runtime

RUN_SECONDS = 120.0  # 1 to 3 s on an idle machine
SESSION_SECONDS = 60
SYSTEM_LIB = "usr/lib/aarch64-linux-gnu"
SDK_LIB = f"opt/qairt/lib/{ARM}"
LATE = "dspqueue_read"  # a function that older ones lack
HTP, STUB = "libQnnHtp.so", "libQnnHtpV73Stub.so"
FASTRPC = "libcdsprpc.so"
QCS9075, SM8550, NO_CHIP = 676, 519, 9999  # the kernel's soc_id
USER = "1000:1000"
# The shell stays: it says what killed the program, as the shell of a board does.
_ENTER = """set -eu
layer=$1 tree=$2 root=$3 node=$4 user=$5; shift 5
ulimit -c 0
mount -t overlay -o "lowerdir=$layer:$tree" overlay "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mknod -m 666 "$root/dev/null" c 1 3
mknod -m 666 "$root/dev/urandom" c 1 9
mkdir "$root/dev/dma_heap"; mknod -m 666 "$root/dev/dma_heap/system" c 1 3
[ -z "$node" ] || mknod -m "$node" "$root/dev/fastrpc-cdsp" c 1 3
set +e
chroot --userspec="$user" --groups= "$root" "$@"
exit $?
"""


def require() -> None:
    """Skip, with the reason, where the tools are not there or this user cannot mount."""
    lacking = sorted({package for name, package in NEEDS.items() if find(name) is None})
    if lacking or os.geteuid() != 0:
        pytest.skip(f"an arm64 board needs root and: {', '.join(lacking) or 'nothing else'}")
    tried = subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True)
    if tried.returncode:
        pytest.skip("an arm64 board needs a mount namespace, which this machine does not give")


@cache
def release(version: str, target: str) -> dict[str, Path]:
    """Qualcomm's libraries for the CPU by name, as a release for v73 holds them."""
    refs = select_files(cached_runtime(version, target), target, "v73").files
    return {Path(ref.name).name: ref.source for ref in refs if ref.name.startswith("lib/")}


@dataclass(frozen=True)
class Parts:
    """What boards are made of: files on one disk, so that a board only links them."""

    folder: Path

    def old_fastrpc(self) -> Path:
        """Debian's libcdsprpc that keeps a function to itself."""
        made = self.folder / "libcdsprpc-old"
        if not made.exists():
            shutil.copy(arm64_tree() / SYSTEM_LIB / FASTRPC, made)
            with made.open("r+b") as stream:
                table = ELFFile(stream).get_section_by_name(".dynsym")
                assert isinstance(table, SymbolTableSection)
                names = [symbol.name for symbol in table.iter_symbols()]
                stream.seek(table["sh_offset"] + table["sh_entsize"] * names.index(LATE) + 4)
                stream.write(b"\x02")  # a function, local
        return made

    def qairt(self, name: str, version: str = NEW, target: str = ARM) -> Path:
        """One of Qualcomm's libraries, of a build."""
        return self._kept(release(version, target)[name], f"{version}-{target}-{name}")

    def qemu(self) -> Path:
        """The program that runs AARCH64 programs; static, so it needs nothing of the tree."""
        return self._kept(Path(find("qemu-aarch64-static") or ""), "qemu-aarch64")

    def _kept(self, source: Path, name: str) -> Path:
        made = self.folder / name
        if not made.exists():
            shutil.copy(source, made)
        return made


@dataclass(frozen=True)
class Said:
    """What a session said: Qualcomm's log with our program's lines, and standard error."""

    qnn: str
    errors: str
    status: int

    @property
    def log(self) -> str:
        """Qualcomm's own lines."""
        return "\n".join(one for one in self.qnn.splitlines() if one.startswith("<"))

    @property
    def all(self) -> str:
        """Both, as somebody would paste them, without what qemu says of itself."""
        lines = [one for one in self.errors.splitlines() if not one.startswith("qemu: ")]
        return "\n".join([self.qnn, *lines])


class Board:
    """A board on which everything but the DSP is as it should be; tests change `layer`.

    Its files are links to those of `parts`: replace them, never write into them.
    """

    def __init__(self, folder: Path, parts: Parts) -> None:
        self.layer, self._root = folder / "layer", folder / "root"
        self.lib, self.system = self.layer / SDK_LIB, self.layer / SYSTEM_LIB
        soc = self.layer / "sys/devices/soc0"
        for made in (self._root, self.lib, self.system, soc, self.layer / "dev"):
            made.mkdir(parents=True)
        (self.layer / "proc").mkdir()
        for name in release(NEW, ARM):
            (self.lib / name).hardlink_to(parts.qairt(name))
        tree = self.layer / "sys/firmware/devicetree/base"
        tree.mkdir(parents=True)
        (tree / "model").write_bytes(b"Qualcomm Technologies, Inc. Lemans EVK\0")  # has shells
        self._soc_id = soc / "soc_id"
        self.chip(QCS9075)
        program = files("fleet.device.npu") / "fleet_session.py"
        (self.layer / "fleet_session.py").write_bytes(program.read_bytes())
        (self.layer / "qemu-aarch64").hardlink_to(parts.qemu())

    def chip(self, soc_id: int) -> None:
        """What the kernel says of the chip."""
        self._soc_id.write_text(f"{soc_id}\n")

    def without(self, name: str) -> None:
        """The tree's library of that name is gone: a whiteout of overlayfs."""
        os.mknod(self.system / name, stat.S_IFCHR, os.makedev(0, 0))

    def replace(self, name: str, content: Path | bytes) -> None:
        """Another file, or other bytes, in place of a library of the SDK folder."""
        place = self.lib / name
        place.unlink()
        if isinstance(content, Path):
            place.hardlink_to(content)
        else:
            place.write_bytes(content)

    def session(
        self,
        *,
        node: str = "0666",
        search: str = f"/{SDK_LIB}",
        library: str = f"/{SDK_LIB}/{HTP}",
    ) -> Said:
        """Open an NPU session with the doctor's program, as an ordinary user.

        `node` is the mode of /dev/fastrpc-cdsp (of root), "" for none; `search` is
        LD_LIBRARY_PATH; `library` is a path, or a plain name for the loader to find.
        """
        argv = ["unshare", "--mount", "sh", "-c", _ENTER, "sh", str(self.layer), str(arm64_tree())]
        argv += [str(self._root), node, USER, "/qemu-aarch64", "-cpu", CPU]
        argv += ["-E", f"LD_LIBRARY_PATH={search}", "/usr/bin/python3"]
        argv += ["/fleet_session.py", library, f"{SESSION_SECONDS}"]
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            said = process.communicate(timeout=RUN_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        text, errors = (part.decode("utf-8", "replace") for part in said)
        return Said(text, errors, process.returncode)
