"""The sources of a runtime (SDK folder, SDK zip, wheel): the files that fleet keeps, and their
paths in a runtime (SDK layout).

An SDK has `lib/<target>/`, `lib/hexagon-vNN/unsigned/` and `bin/<target>/`. A wheel is flat
(`onnxruntime_qnn/*`, on x86_64 also `onnxruntime_qnn.libs/libc++-*`); its skels are identified by
their ELF header.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from fleet.data import load
from fleet.model.errors import InputError, RuntimeStoreError
from fleet.model.runtime import Runtime, RuntimeSource
from fleet.runtimes.scan import HEADER_BYTES, identify
from fleet.runtimes.targets import target_of_wheel
from fleet.runtimes.tree import FileTree, FolderTree, ZipTree, open_zip

Layout = dict[str, str]  # path in the runtime → name in the tree

_BACKEND = re.compile(
    r"^(?P<prefix>(?:[^/]+/){0,2})lib/(?P<target>[^/]+)/(?:lib)?QnnHtp\.(?:so|dll)$"
)
_HEXAGON = re.compile(r"^lib/hexagon-v[0-9a-f]+/unsigned/")
_SKEL = re.compile(r"^lib/(hexagon-v[0-9a-f]+)/unsigned/libQnnHtpV[0-9A-F]+Skel\.so$")
_WHEEL_FOLDERS = re.compile(r"^onnxruntime_qnn(\.libs)?/[^/]+$")


def group_of(path: str) -> str:
    """Return the group of a path: `hexagon-v73`, a target's name, or `` for the top folder."""
    parts = path.split("/")
    return parts[1] if len(parts) > 2 else ""


def targets_of(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the targets whose libQnnHtp is among these runtime paths."""
    matches = (_BACKEND.match(path) for path in paths)
    return tuple(sorted({match["target"] for match in matches if match and not match["prefix"]}))


def is_sdk_root(folder: Path) -> bool:
    """Return True for an SDK folder with `lib/<target>/libQnnHtp.so` (or the DLL)."""
    return any(folder.glob("lib/*/libQnnHtp.so")) or any(folder.glob("lib/*/QnnHtp.dll"))


def sdk_prefix(names: Iterable[str], where: str) -> str:
    """Return the SDK root inside a zip: "", `2.51.0/` or `qairt/2.51.0/`."""
    prefixes = {match["prefix"] for name in names if (match := _BACKEND.match(name))}
    if len(prefixes) == 1:
        return prefixes.pop()
    if prefixes:
        raise RuntimeStoreError(
            f"{where} contains more than one QAIRT SDK: {', '.join(sorted(prefixes))}",
            hint="give one of these folders: fleet runtime add FOLDER",
        )
    raise RuntimeStoreError(
        f"{where} is not a QAIRT SDK: the file lib/<target>/libQnnHtp.so is missing",
        hint="give the folder that contains sdk.yaml, lib and bin, the SDK's zip, or a wheel",
    )


def sdk_layout(tree: FileTree, targets: Collection[str]) -> Layout:
    """Return the files to keep of an SDK: of the named targets, or of all except Windows.

    Raises InputError if a named target is not in this SDK.
    """
    names = tree.sizes()
    have = targets_of(names)
    missing = sorted(set(targets) - set(have))
    if missing:
        raise InputError(
            f"the SDK has no files for the target {', '.join(missing)}",
            hint="use one of: " + ", ".join(have),
        )
    wanted = set(targets) or {name for name in have if "windows" not in name}
    wanted |= {match[1] for name in names if (match := _SKEL.match(name))}
    return {name: name for name in names if group_of(name) in wanted | {""} and _kept(name)}


def _kept(name: str) -> bool:
    keep = load("runtime_files")["keep"]
    top, _, rest = name.partition("/")
    if not rest:
        return _matches(top, keep["root"])
    if _HEXAGON.match(name):
        return _matches(name.rsplit("/", 1)[-1], keep["dsp"])
    return (
        top in {"lib", "bin"}
        and name.count("/") == 2
        and (_matches(name.rsplit("/", 1)[-1], keep[top]))
    )


def wheel_layout(tree: ZipTree, where: str) -> Layout:
    """Return the files to keep of an onnxruntime-qnn wheel: QAIRT without the provider.

    libc++ goes next to the libraries, where LD_LIBRARY_PATH finds it although their RPATH is
    `$ORIGIN/../onnxruntime_qnn.libs` (measured by loading them).
    """
    keep = load("runtime_files")["keep"]
    names = {name.rsplit("/", 1)[-1]: name for name in tree.sizes() if _WHEEL_FOLDERS.match(name)}
    backend = names.get("libQnnHtp.so") or names.get("QnnHtp.dll")
    machine = identify(tree.head(backend, HEADER_BYTES), backend)[0] if backend else ""
    target = target_of_wheel(machine)
    if target is None:
        raise RuntimeStoreError(
            f"{where} contains no QAIRT libraries for a target that fleet knows",
            hint="give an onnxruntime-qnn wheel for Linux or for Windows on ARM",
        )
    layout: Layout = {}
    for short, name in names.items():
        if _matches(short, keep["root"]):
            layout[short] = name
        elif _matches(short, keep["lib"]) or _matches(short, keep["dsp"]):
            layout[f"{_wheel_folder(tree, short, name, target)}/{short}"] = name
    return layout


def _wheel_folder(tree: ZipTree, short: str, name: str, target: str) -> str:
    catalog = re.fullmatch(r"lib[a-z]+(v[0-9a-f]+)\.cat", short)
    if catalog:
        return f"lib/hexagon-{catalog[1]}/unsigned"
    arch = identify(tree.head(name, HEADER_BYTES), name)[1]
    return f"lib/hexagon-{arch}/unsigned" if arch else f"lib/{target}"


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


SDK_PARTS = "sdk-parts"  # kind of a source that was fetched from the vendor
_WHEEL_FOLDER = "onnxruntime_qnn/"


@dataclass(frozen=True)
class OpenedSource:
    """A source and its wanted files."""

    tree: FileTree
    layout: Layout
    source: RuntimeSource

    def is_in(self, runtime: Runtime) -> bool:
        """Return True if this file has already provided all its groups to the runtime."""
        wanted = {group_of(path) for path in self.layout} - {""}
        given = {
            group
            for item in runtime.sources
            if item.sha256 is not None and item.sha256 == self.source.sha256
            for group in item.provides
        }
        return wanted <= given


def open_folder(path: Path, targets: Collection[str]) -> OpenedSource:
    """Open an extracted SDK: `path`, or the only one inside it (`<version>`, `qairt/<version>`)."""
    candidates = (path, *sorted(path.glob("*")), *sorted(path.glob("qairt/*")))
    roots = [item for item in candidates if item.is_dir() and is_sdk_root(item)]
    if not roots:
        raise RuntimeStoreError(
            f"{path} is not a QAIRT SDK: the file lib/<target>/libQnnHtp.so is missing",
            hint="give the folder that contains sdk.yaml, lib and bin, the SDK's zip, or a wheel",
        )
    if len(roots) > 1 and roots[0] != path:
        raise RuntimeStoreError(
            f"{path} contains more than one QAIRT SDK: {', '.join(str(item) for item in roots)}",
            hint="give one of these folders: fleet runtime add FOLDER",
        )
    tree = FolderTree(roots[0])
    source = RuntimeSource("sdk-folder", str(roots[0].resolve()))
    return OpenedSource(tree, sdk_layout(tree, targets), source)


@contextmanager
def open_file(
    path: Path, name: str, digest: str, targets: Collection[str]
) -> Iterator[OpenedSource]:
    """Open a wheel or an SDK zip, which are distinguished by their content, not by name."""
    with open_zip(path) as archive:
        names = archive.sizes()
        if any(member.startswith(_WHEEL_FOLDER) for member in names):
            layout = _wheel(archive, name, targets)
            yield OpenedSource(archive, layout, RuntimeSource("wheel", name, digest))
        else:
            tree = archive.below(sdk_prefix(names, name))
            layout = sdk_layout(tree, targets)
            yield OpenedSource(tree, layout, RuntimeSource("sdk-zip", name, digest))


def sdk_spans(path: Path, name: str, targets: Collection[str]) -> list[tuple[int, int]]:
    """Return the byte ranges of an SDK zip that contain the files of `targets`."""
    with open_zip(path) as archive:
        tree = archive.below(sdk_prefix(archive.sizes(), name))
        return tree.spans(sdk_layout(tree, targets).values())


@contextmanager
def open_sdk_parts(
    path: Path, name: str, digest: str, targets: Collection[str]
) -> Iterator[OpenedSource]:
    """Open an SDK zip with only the table of contents and the files of `targets`."""
    with open_zip(path) as archive:
        tree = archive.below(sdk_prefix(archive.sizes(), name))
        source = RuntimeSource(SDK_PARTS, name, digest)
        yield OpenedSource(tree, sdk_layout(tree, targets), source)


def _wheel(archive: ZipTree, name: str, targets: Collection[str]) -> Layout:
    layout = wheel_layout(archive, name)
    have = targets_of(layout)
    if targets and not set(targets) <= set(have):
        raise InputError(
            f"the wheel {name} is for {', '.join(have)}, but --target is "
            f"{', '.join(sorted(targets))}",
            hint="run the command without --target, or give the wheel for this target",
        )
    return layout
