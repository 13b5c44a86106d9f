"""The sources of a runtime: an SDK folder, an SDK zip or a wheel, opened for reading."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleet.model.errors import InputError, RuntimeStoreError
from fleet.model.runtime import Runtime, RuntimeSource
from fleet.runtimes.layout import (
    Layout,
    group_of,
    is_sdk_root,
    sdk_layout,
    sdk_prefix,
    targets_of,
    wheel_layout,
)
from fleet.runtimes.tree import FileTree, FolderTree, ZipTree, open_zip

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
