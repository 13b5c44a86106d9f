"""Raw files by content: `profiles.raw/ab/ab12…`, each content once, whole or not at all."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

from fleet.model.errors import ProfileStoreError


class RawFiles:
    """The folder beside the database. Raises ProfileStoreError where it cannot be written."""

    def __init__(self, database: Path) -> None:
        self.root = database.with_suffix(".raw")
        self._fresh = False

    def path(self, sha256: str) -> Path:
        """Where a content lies."""
        return self.root / sha256[:2] / sha256

    def keep(self, data: bytes) -> str:
        """Keep a content; its sha256. It is on the disk for sure after `settle`."""
        sha256 = hashlib.sha256(data).hexdigest()
        target = self.path(sha256)
        try:
            if target.exists() and target.stat().st_size == len(data):
                return sha256
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f"{sha256}.{secrets.token_hex(4)}.part")
            part.write_bytes(data)
            part.replace(target)
        except OSError as error:
            raise ProfileStoreError(
                f"{target} cannot be written: {error.strerror}", hint=f"df -h {self.root.parent}"
            ) from error
        self._fresh = True
        return sha256

    def settle(self) -> None:
        """All kept contents survive a power cut. One call for many: each costs a flush."""
        if self._fresh and hasattr(os, "sync"):
            os.sync()
        self._fresh = False

    def read(self, sha256: str) -> bytes:
        """The content again. Raises ProfileStoreError: gone, or not what was kept."""
        target = self.path(sha256)
        try:
            data = target.read_bytes()
        except OSError as error:
            raise ProfileStoreError(
                f"{target} cannot be read: {error.strerror}", hint="import the file again"
            ) from error
        if hashlib.sha256(data).hexdigest() != sha256:
            raise ProfileStoreError(f"{target} is damaged", hint=f"rm {target}; import it again")
        return data
