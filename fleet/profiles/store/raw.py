"""Raw files by content: `profiles.raw/ab/ab12…`, each content once, whole or not at all."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

from fleet.model.errors import ProfileStoreError, reason
from fleet.model.home import open_private, private_folder

MOST_WAITING = 64 << 20


class RawFiles:
    """The folder beside the database. Raises ProfileStoreError where it cannot be written."""

    def __init__(self, database: Path) -> None:
        self.root = database.with_suffix(".raw")
        self._root = str(self.root)
        self._own = secrets.token_hex(4)
        self._made: set[str] = set()
        self._waiting: dict[str, bytes] = {}
        self._bytes = 0
        self._fresh = False

    def keep(self, data: bytes) -> str:
        """Keep a content; its sha256. It is written by `settle`."""
        sha256 = hashlib.sha256(data).hexdigest()
        self._waiting[sha256] = data
        self._bytes += len(data)
        if self._bytes > MOST_WAITING:
            self._write_all()
        return sha256

    def settle(self) -> None:
        """Write what is kept, so that it survives a power cut. One flush for many."""
        self._write_all()
        if self._fresh and hasattr(os, "sync"):
            os.sync()
        self._fresh = False

    def _write_all(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting, {}, 0
        for sha256, data in waiting.items():
            self._fresh |= self._write(sha256, data)

    def _write(self, sha256: str, data: bytes) -> bool:
        """False where it was there."""
        folder = f"{self._root}/{sha256[:2]}"
        target = f"{folder}/{sha256}"
        try:
            if _size(target) == len(data):
                return False
            if folder not in self._made:
                private_folder(Path(folder))
                self._made.add(folder)
            part = f"{target}.{self._own}.part"
            with open_private(part) as stream:
                stream.write(data)
            os.replace(part, target)  # noqa: PTH105
        except OSError as error:
            raise ProfileStoreError(
                f"{target} cannot be written: {reason(error)}",
                hint=f"free disk space, if the disk is full: df -h {self.root.parent}",
            ) from error
        return True


def _size(path: str) -> int:
    """-1 where there is none."""
    try:
        return os.stat(path).st_size  # noqa: PTH116 - many small files
    except FileNotFoundError:
        return -1
