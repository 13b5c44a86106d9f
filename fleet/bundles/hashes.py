"""SHA-256 of the bundle's files, computed once: bundles of gigabytes are inspected often."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

from fleet.bundles.jsonfile import read_text
from fleet.bundles.signatures import Signatures, hash_and_sign
from fleet.model.errors import BundleError
from fleet.model.files import FileRef, sha256_file
from fleet.model.home import fleet_home

_MIN_BYTES = 4 * 1024 * 1024  # below, hashing (1 GB/s) costs less than the look-up is worth
_MAX_ENTRIES = 2000
_SETTLED_SECONDS = 2.0  # a file changed again within one tick of the clock keeps its mtime
_SUM_LINE = re.compile(r"^([0-9a-fA-F]{64}) [ *](.+)$")


class HashCache:
    """path, size, mtime and inode → SHA-256, in `$FLEET_HOME/hashes.json`.

    What is hashed is signed too, in the same reading: a later version is sent as what differs.
    A cache only: an unreadable or unwritable one is passed over. Call `save` at the end.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or fleet_home() / "hashes.json"
        self._known: dict[str, str] | None = None
        self._changed = False

    def sha256(self, path: Path) -> str:
        """The hash of a file. Raises OSError."""
        stat = path.stat()
        if stat.st_size < _MIN_BYTES:
            return sha256_file(path)
        key = f"{path.absolute()}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ino}"
        known = self._load()
        if key in known:
            return known[key]
        digest, signature = hash_and_sign(path)
        Signatures().save(digest, signature)
        if abs(time.time() - stat.st_mtime) > _SETTLED_SECONDS:
            known[key] = digest
            self._changed = True
        return digest

    def save(self) -> None:
        """Keep what was computed; the oldest entries fall out."""
        if not self._changed or self._known is None:
            return
        entries = dict(list(self._known.items())[-_MAX_ENTRIES:])
        part = self._path.with_name(f".hashes-{os.getpid()}.json")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps(entries), "utf-8")
            part.replace(self._path)
        except OSError:
            return  # a home that cannot be written costs time, nothing else
        self._changed = False

    def _load(self) -> dict[str, str]:
        if self._known is None:
            try:
                found = json.loads(self._path.read_text("utf-8"))
            except (OSError, ValueError):
                found = {}
            ok = isinstance(found, dict) and all(isinstance(one, str) for one in found.values())
            self._known = found if ok else {}
        return self._known


def read_sums(path: Path) -> dict[str, str]:
    """Name → expected SHA-256 of a `sha256sum` file. Raises BundleError for a wrong line."""
    expected = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _SUM_LINE.match(line)
        if match is None:
            raise BundleError(
                f"{path.name} line {number} is not `<sha256>  <name>`",
                hint=f"write it anew: cd '{path.parent}' && sha256sum *.bin *.json > {path.name}",
            )
        expected[match[2].strip().removeprefix("./")] = match[1].lower()
    return expected


def ref(name: str, path: Path, cache: HashCache, hashes: bool) -> FileRef:
    """A file of the bundle; without `hashes` its sha256 is empty."""
    return FileRef(path, name, path.stat().st_size, cache.sha256(path) if hashes else "")
