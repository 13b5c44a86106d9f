"""A QAIRT runtime in the host's store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from msgspec import Struct


class Library(Struct, frozen=True):
    """A file of a runtime. `path` is relative to the runtime's root, in SDK layout.

    `build_id` is like `2.51.0.260929181845` (no leading v, no _nnnnn suffix). `aisw_version` is
    like `2.51.0`: libGenie and NetRunExtensions contain only that, libQnnSystem contains neither
    (docs/sources/qairt.md 1). `machine` is aarch64, x86_64, hexagon, win-arm64, win-x86_64 or
    other.
    """

    path: str
    size: int
    sha256: str
    machine: str
    hexagon_arch: str | None = None
    build_id: str | None = None
    aisw_version: str | None = None

    @property
    def name(self) -> str:
        """The file name without folders."""
        return self.path.rsplit("/", 1)[-1]


BROUGHT = "program"  # the kind of a QAIRT that a program has in its own folder


class RuntimeSource(Struct, frozen=True):
    """The source of a runtime. `kind` is sdk-folder, sdk-zip, sdk-parts, wheel or BROUGHT.

    `name` is the name of the file or folder. `sha256` is that of the file, None for a folder. For
    sdk-parts, of which only some members were downloaded, it is that of the zip's table of
    contents. `provides` are the targets and Hexagon folders (`hexagon-v73`) that came from it.
    """

    kind: str
    name: str
    sha256: str | None = None
    provides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Runtime:
    """A runtime whose stub, skel, backend and tools come from one build.

    `version` is `2.51.0`, `build_id` the full id. `targets` are QAIRT target names with a
    libQnnHtp, such as `aarch64-oe-linux-gcc11.2` or `x86_64-linux-clang`. Wheels of one build merge
    into one runtime: `sources` are all of them, `source` is the first. `changed` is True if the
    call that returned this value changed the store.
    """

    id: str
    version: str
    build_id: str
    root: Path
    targets: tuple[str, ...]
    hexagon_archs: tuple[str, ...]
    source: RuntimeSource
    libraries: tuple[Library, ...]
    sources: tuple[RuntimeSource, ...] = ()
    changed: bool = False
    PLAIN: ClassVar[str] = "* size -libraries -source -changed"

    @property
    def size(self) -> int:
        """The size of all libraries in bytes."""
        return sum(item.size for item in self.libraries)

    def source_of(self, group: str) -> RuntimeSource:
        """Return the source of a target or Hexagon folder, or `source` if none provides it."""
        return next((item for item in self.sources if group in item.provides), self.source)


def no_runtime(target: str) -> Runtime:
    """Return an empty runtime, for a runner that brings its own libraries."""
    return Runtime("none", "none", "none", Path("/nonexistent"), (target,), (), _NOTHING, ())


_NOTHING = RuntimeSource("none", "none", None)


def version_key(text: str) -> tuple[int, ...]:
    """Return the sort key of a version or build id:

    `2.51.0.260929181845` → (2, 51, 0, 260929181845).

    A leading `v` and a `_nnnnn` suffix do not count (wheels do not have them). Raises ValueError
    for text that is not a version.
    """
    core = text.strip().removeprefix("v").split("_", 1)[0]
    return tuple(int(part) for part in core.split("."))


def same_build(build: str, other: str) -> bool:
    """Return True for the same build: equal major.minor.patch, and one ident is a prefix of the
    other.

    This is Qualcomm's own rule in ai-hub-models, QAIRTVersion (docs/sources/deployment.md 2):
    2.45.0.260326 equals 2.45.0.260326154327, and 2.45.0 equals both.
    """
    a, b = (text.strip().removeprefix("v").split("_", 1)[0].split(".") for text in (build, other))
    if a[:3] != b[:3]:
        return False
    ident_a, ident_b = ".".join(a[3:]), ".".join(b[3:])
    return ident_a.startswith(ident_b) or ident_b.startswith(ident_a)
