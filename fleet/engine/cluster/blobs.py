"""Blobs of a worker machine: `$FLEET_HOME/blobs/<sha256>`, shared by its processes and runs."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from pathlib import Path

from fleet.content.hashes import HashCache
from fleet.model.errors import TransferError
from fleet.model.files import sha256_file
from fleet.model.home import fleet_home, private_folder

KEEP_SECONDS = 30 * 86400.0  # a blob that was not used for a month is deleted
DEAD_PART_SECONDS = 86400.0  # no transfer is silent for a day


class Part:
    """A blob that arrives in pieces in any order, in a file that only this process writes."""

    def __init__(self, final: Path, size: int) -> None:
        self._final, self._size = final, size
        private_folder(final.parent)
        self._path = final.with_name(f"{final.name}.{secrets.token_hex(4)}.part")
        self._file = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        self.written = 0

    def write(self, offset: int, data: bytes) -> None:
        """Write a piece. Raises OSError if there is no space."""
        view, at = memoryview(data), offset
        while view:
            done = os.pwrite(self._file, view, at)
            view, at = view[done:], at + done
        self.written += len(data)

    def finish(self) -> None:
        """Check the hash and rename the file to it. Raises TransferError if the hash is wrong."""
        os.fsync(self._file)
        os.close(self._file)
        self._file = -1
        digest = sha256_file(self._path)
        if digest != self._final.name or self._path.stat().st_size != self._size:
            self._path.unlink()
            raise TransferError(
                f"a file was damaged on its way: its SHA-256 begins with {digest[:12]} instead "
                f"of {self._final.name[:12]}"
            )
        self._path.chmod(0o444)
        self._path.replace(self._final)

    def drop(self) -> None:
        """Delete the pieces that have arrived."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._path.unlink(missing_ok=True)


class Blobs:
    """The blobs of the machine of one worker process. Safe for use from several threads."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or fleet_home() / "blobs"
        self.parts: dict[str, Part] = {}
        self._lock = threading.Lock()
        self._trusted: set[str] = set()

    def path(self, sha: str) -> Path:
        """Return the path of a blob, existing or not."""
        return self.root / sha

    def has(self, sha: str, size: int) -> bool:
        """Return True if a blob exists. A link to a shared disk is hashed once in each process."""
        path = self.path(sha)
        try:
            there = path.stat().st_size == size
        except OSError:
            return False
        if there and path.is_symlink() and sha not in self._trusted:
            there = self._is(path.resolve(), sha)
        if there and sha not in self._trusted:
            self._trusted.add(sha)
            with contextlib.suppress(
                OSError
            ):  # the file of another user: its age counts from its arrival
                os.utime(path, follow_symlinks=False)
        return there

    def adopt(self, sha: str, size: int, original: Path) -> bool:
        """Link a file of a shared disk as a blob.

        Returns True if the path of the workstation has this very content here too.
        """
        try:
            same = original.stat().st_size == size and self._is(original, sha)
        except OSError:
            return False
        if same:
            private_folder(self.root)
            link = self.root / f"{sha}.{secrets.token_hex(4)}.part"
            link.symlink_to(original.resolve())
            link.replace(self.path(sha))
            self._trusted.add(sha)
        return same

    def take(self, sha: str, size: int, offset: int, data: bytes) -> None:
        """Write a piece at `offset` of a blob of `size` bytes, with its hash `sha`."""
        with self._lock:
            part = self.parts.get(sha)
            if part is None:
                part = self.parts[sha] = Part(self.path(sha), size)
        part.write(offset, data)

    def finish(self, sha: str) -> None:
        """Finish a blob whose pieces have all arrived. Raises TransferError."""
        with self._lock:
            part = self.parts.pop(sha)
        part.finish()

    def drop(self, sha: str) -> None:
        """Delete the pieces of a blob that the workstation gave up."""
        with self._lock:
            part = self.parts.pop(sha, None)
        if part is not None:
            part.drop()

    def tidy(self) -> None:
        """Remove blobs that were not used for a month, and parts of dead transfers."""
        now = time.time()
        for path in self.root.glob("*") if self.root.is_dir() else ():
            limit = DEAD_PART_SECONDS if path.name.endswith(".part") else KEEP_SECONDS
            with contextlib.suppress(OSError):
                if now - path.lstat().st_mtime > limit:
                    path.unlink()

    @staticmethod
    def _is(path: Path, sha: str) -> bool:
        cache = HashCache()
        same = cache.sha256(path) == sha
        cache.save()
        return same
