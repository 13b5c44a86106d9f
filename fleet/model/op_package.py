"""An op package: the user's own QNN operations, as two libraries built from one source.

On a device, one library runs on the CPU and registers the operations. The other one runs on the DSP
and has their kernels. With one of them alone a model cannot be loaded or run (onnxruntime-qnn, UDO
sample: `Could not find an implementation`, or INVALID_HANDLE 6001).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.model.files import FileRef

CPU, HTP = "CPU", "HTP"  # names of QNN's targets in QnnBackend_registerOpPackage


@dataclass(frozen=True)
class OpPackageSpec:
    """The entry of an op package in a playbook. Paths are absolute host paths.

    `htp` is None if there is no DSP (the emulator). `provider` None means the only one that the
    libraries export. `qairt` is the version that they were built with, for libraries that do not
    contain it.
    """

    name: str
    cpu: Path
    htp: Path | None = None
    provider: str | None = None
    qairt: str | None = None


@dataclass(frozen=True)
class OpLibrary:
    """A library of an op package, as read from its ELF file.

    `role` is CPU or HTP, from the playbook. `machine` is aarch64, x86_64, hexagon or other,
    `hexagon_arch` is like `v75`, `system` is android, linux or None (unknown). `builds` are the
    QAIRT build ids in the file, () for none. `providers` are exported functions whose names end
    with InterfaceProvider; `problem` says why the wanted one cannot be used. `needed` are the
    libraries that its loader requires, `entry` the function that libQnnHtp calls first ("" for
    none). `file` has the name on the device, without a folder.
    """

    role: str
    file: FileRef
    machine: str
    hexagon_arch: str | None = None
    system: str | None = None
    builds: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    problem: str = ""
    needed: tuple[str, ...] = ()
    entry: str = ""

    @property
    def kind(self) -> str:
        """`aarch64` or `hexagon-v75`, for messages and for fleet.lock."""
        return f"hexagon-{self.hexagon_arch}" if self.machine == "hexagon" else self.machine


@dataclass(frozen=True)
class OpPackage:
    """An op package that was read. `provider` is None if none could be chosen.

    `declared` is the QAIRT version in the playbook, None without one.
    """

    name: str
    libraries: tuple[OpLibrary, ...]
    provider: str | None = None
    declared: str | None = None

    def library(self, role: str) -> OpLibrary | None:
        """Return the library with this role, CPU or HTP."""
        return next((library for library in self.libraries if library.role == role), None)

    @property
    def qairt(self) -> str | None:
        """The QAIRT build of the package, from the files or else from the playbook."""
        builds = {build for library in self.libraries for build in library.builds}
        return builds.pop() if len(builds) == 1 else self.declared

    def as_origin(self) -> dict[str, Any]:
        """Return the entry for the manifest of a release. The content is identified by file
        hashes.
        """
        return {
            "name": self.name,
            "provider": self.provider,
            "qairt": self.qairt,
            "libraries": {library.role: library.kind for library in self.libraries},
        }
