"""An op package: QNN operations of the user's own, as two libraries built from one source.

On a device one library runs on the CPU and registers the operations, the other one runs on
the DSP and has their kernels. With one half alone a model cannot be loaded or run
(onnxruntime-qnn, UDO sample: `Could not find an implementation`, or INVALID_HANDLE 6001).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.model.files import FileRef

CPU, HTP = "CPU", "HTP"  # names of QNN's targets in QnnBackend_registerOpPackage


@dataclass(frozen=True)
class OpPackageSpec:
    """What a playbook says of one op package. Paths are absolute host paths.

    `htp` is None where there is no DSP (the emulator). `provider` None: the only one that the
    libraries export. `qairt` is the version that they were built with, for libraries that do
    not say it themselves.
    """

    name: str
    cpu: Path
    htp: Path | None = None
    provider: str | None = None
    qairt: str | None = None


@dataclass(frozen=True)
class OpLibrary:
    """One library of an op package, as it was read from its ELF file.

    `role` is CPU or HTP, what the playbook calls it; `machine` what it is: aarch64, x86_64,
    hexagon or other. `hexagon_arch` like `v75`. `system` is android, linux or None (unknown).
    `builds` are the QAIRT build ids that stand in it, () for none. `providers` are exported
    functions whose names end with InterfaceProvider; `problem` says why the wanted one cannot
    be used. `needed` are the libraries that its loader will look for, `entry` the function
    that libQnnHtp calls first ("" for none). The name of `file` is the one on the device,
    without a folder.
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
        """`aarch64`, `hexagon-v75`, for messages and for fleet.lock."""
        return f"hexagon-{self.hexagon_arch}" if self.machine == "hexagon" else self.machine


@dataclass(frozen=True)
class OpPackage:
    """An op package that was read. `provider` is None when none could be chosen.

    `declared` is the QAIRT version of the playbook, None without one.
    """

    name: str
    libraries: tuple[OpLibrary, ...]
    provider: str | None = None
    declared: str | None = None

    def library(self, role: str) -> OpLibrary | None:
        """The library of a role, CPU or HTP."""
        return next((library for library in self.libraries if library.role == role), None)

    @property
    def qairt(self) -> str | None:
        """The QAIRT build it was made with: the files' own word, else the playbook's."""
        builds = {build for library in self.libraries for build in library.builds}
        return builds.pop() if len(builds) == 1 else self.declared

    def as_origin(self) -> dict[str, Any]:
        """What the manifest of a release keeps of it; content is known by the files' hashes."""
        return {
            "name": self.name,
            "provider": self.provider,
            "qairt": self.qairt,
            "libraries": {library.role: library.kind for library in self.libraries},
        }
