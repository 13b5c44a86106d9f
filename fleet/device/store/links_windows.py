"""The store on Windows: hard links into it, and a small file with the live id.

Skel and catalog are thus in one folder, and no file exists twice. `current/<name>` is replaced in
one rename (MoveFileEx), so a reader finds the old id or the new one. Releases are started by their
id. It also runs on POSIX, where the tests are.
"""

import os
import shutil

from fleet.device.store.files import EndedError, is_file, patiently, put, reason
from fleet.device.store.links_posix import PosixLinks
from fleet.device.store.stamp import text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class WindowsLinks(PosixLinks):
    """The operations that differ on Windows."""

    env = "env.ps1"
    posix = False

    def login(self, base: str, name: str) -> "tuple[str, str]":
        """Return (file name, text) of the environment for PowerShell."""
        quoted = base
        for mark in "'\u2018\u2019\u201a\u201b":  # each of these ends a text in single quotes
            quoted = quoted.replace(mark, mark * 2)
        return f"{name}.ps1", (
            f"# The environment of the live release of {name}, by fleet. "
            f"In PowerShell: . {base}/env/{name}.ps1\n"
            f"$fleetRelease = (Get-Content -TotalCount 1 -LiteralPath '{quoted}/current/{name}')\n"
            f". ('{quoted}/meta/{name}/' + $fleetRelease.Trim() + '/env.ps1')\n"
            f"$env:QNN_SDK_ROOT = '{quoted}/releases/{name}/' + $fleetRelease.Trim()\n"
            "$env:PATH = $env:QNN_SDK_ROOT + '/bin;' + $env:QNN_SDK_ROOT + ';' + $env:PATH\n"
        )

    def live(self, base: str, name: str) -> str:
        """Return the live id from its small file."""
        return text_of(f"{base}/current/{name}").strip()

    def point(self, base: str, name: str, release_id: str, run: str) -> None:
        """Make a release the live one. The temporary name is fixed, so leftovers are
        overwritten.
        """
        del run
        WindowsLinks.put(f"{base}/current/{name}", release_id + "\n", f"{base}/current/.{name}.new")

    def leads(self, path: str, blob: str) -> bool:
        """Return True if both are names of one file."""
        try:
            return os.path.samefile(path, blob) and not os.path.islink(path)
        except OSError:
            return False

    def link(self, path: str, blob: str, new: str) -> None:
        """Create a hard link; an open file cannot be replaced. Raises EndedError."""
        del new
        if self.leads(path, blob):
            return
        WindowsLinks.remove(path)
        try:
            os.link(blob, path)
        except OSError as error:
            why = f"no hard link for {path} (NTFS has them): {reason(error)}"
            raise EndedError(74, f"failed stage {why}") from error

    @staticmethod
    def put(path: str, text: "str | memoryview", new: str = "", sync: bool = True) -> None:
        """Write and sync, because Windows cannot flush a file system."""
        put(path, text, new, sync)

    def small(self, path: str, data: memoryview, mode: int) -> None:
        """Write a small file and sync it."""
        put(path, data, sync=True)
        WindowsLinks.mode(path, mode)

    @staticmethod
    def mode(path: str, mode: int) -> None:
        """Do nothing on Windows: every file is executable, and read-only files cannot be
        removed.
        """
        if os.name != "nt":
            os.chmod(path, mode)

    @staticmethod
    def rename(path: str, to: str) -> None:
        """Rename as soon as nobody reads the file."""
        patiently(os.rename if os.path.isdir(path) else os.replace, path, to)

    @staticmethod
    def remove(path: str) -> None:
        """Remove a path without following junctions."""
        if os.path.isdir(path) and not os.path.islink(path):
            patiently(shutil.rmtree, path)
        elif os.path.lexists(path):
            patiently(os.unlink, path)

    def flush(self, path: str) -> None:
        """Do nothing, because each file was synced."""

    @staticmethod
    def room(store: str, need: int) -> None:
        """Do nothing, because there are no recyclable blobs."""

    def discard(self, release: str) -> bool:
        """Remove a release. Return False if it is in use.

        A folder with an open file, such as a loaded library, cannot be renamed; nothing is then
        removed.
        """
        folder, _, name = release.rpartition("/")
        gone = release if name.startswith(".gone-") else f"{folder}/.gone-{name}"
        try:
            if gone != release:
                os.rename(release, gone)
            shutil.rmtree(gone)
        except OSError:
            return False
        return True

    def unused(self, base: str, blobs: "Iterable[str]") -> "list[str]":
        """Return the blobs that no release needs, by their number of hard links."""
        store = f"{base}/store"
        return [
            blob
            for blob in blobs
            if is_file(f"{store}/{blob}") and os.stat(f"{store}/{blob}").st_nlink == 1
        ]

    @staticmethod
    def drop(store: str, loose: "list[str]") -> None:
        """Delete blobs. An open one is deleted the next time."""
        for blob in loose:
            try:
                os.unlink(f"{store}/{blob}")
            except OSError:
                continue
