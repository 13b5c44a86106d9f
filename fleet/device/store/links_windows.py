"""What a store on Windows is made of: hard links into it, and a small file with the live id.

So skel and catalog lie in one folder and no file is there twice. `current/<name>` is replaced in
one rename (MoveFileEx): who reads it finds the old id or the new one. Releases are started by their
id, so nothing runs through it. Runs on POSIX too, where the tests are.
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
    """What is done otherwise."""

    env = "env.ps1"
    posix = False

    def login(self, base: str, name: str) -> "tuple[str, str]":
        """The same for PowerShell."""
        quoted = base
        for mark in "'\u2018\u2019\u201a\u201b":  # any of these ends a text in single quotes
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
        """The word of the small file."""
        return text_of(f"{base}/current/{name}").strip()

    def point(self, base: str, name: str, release_id: str, run: str) -> None:
        """The same name each time: what a kill left is written over."""
        del run
        WindowsLinks.put(f"{base}/current/{name}", release_id + "\n", f"{base}/current/.{name}.new")

    def leads(self, path: str, blob: str) -> bool:
        """Two names of one file."""
        try:
            return os.path.samefile(path, blob) and not os.path.islink(path)
        except OSError:
            return False

    def link(self, path: str, blob: str, new: str) -> None:
        """A hard link; nothing can be renamed over a file that is open."""
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
        """On the disk at once: nothing flushes a file system there."""
        put(path, text, new, sync)

    def small(self, path: str, data: memoryview, mode: int) -> None:
        """On the disk at once."""
        put(path, data, sync=True)
        WindowsLinks.mode(path, mode)

    @staticmethod
    def mode(path: str, mode: int) -> None:
        """Every file can be started there, and read-only ones never be removed."""
        if os.name != "nt":
            os.chmod(path, mode)

    @staticmethod
    def rename(path: str, to: str) -> None:
        """As soon as nobody reads it."""
        patiently(os.rename if os.path.isdir(path) else os.replace, path, to)

    @staticmethod
    def remove(path: str) -> None:
        """Junctions are not followed."""
        if os.path.isdir(path) and not os.path.islink(path):
            patiently(shutil.rmtree, path)
        elif os.path.lexists(path):
            patiently(os.unlink, path)

    def flush(self, path: str) -> None:
        """Each file was."""

    @staticmethod
    def room(store: str, need: int) -> None:
        """Nothing is kept that could go."""

    def discard(self, release: str) -> bool:
        """A folder with an open file cannot be renamed: then nothing of it goes, as of a library
        that is loaded.
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
        """Each release that uses a blob is one more name of it."""
        store = f"{base}/store"
        return [
            blob
            for blob in blobs
            if is_file(f"{store}/{blob}") and os.stat(f"{store}/{blob}").st_nlink == 1
        ]

    @staticmethod
    def drop(store: str, loose: "list[str]") -> None:
        """One that is open goes the next time."""
        for blob in loose:
            try:
                os.unlink(f"{store}/{blob}")
            except OSError:
                continue
