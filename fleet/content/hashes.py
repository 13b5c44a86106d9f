"""SHA-256 of bundle files, computed once, because bundles of gigabytes are inspected often."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from concurrent.futures import Future
from pathlib import Path

from fleet.content.signatures import Signatures, Signing, hash_and_sign
from fleet.model.files import FileRef, sha256_file
from fleet.model.home import fleet_home, write_whole

# for smaller files hashing (1 GB/s) costs less than the look-up; but see sources.py
MIN_BYTES = 4 << 20
_MAX_ENTRIES = 2000
_SETTLED_SECONDS = 2.0  # a file changed again within one tick of the clock keeps its mtime
_AT_ONCE = threading.BoundedSemaphore(2)  # files that threads read at once; more cause only seeks


class HashCache:
    """A cache: path, size, mtime, inode and ctime → SHA-256, in `$FLEET_HOME/hashes.json`.

    Hashing a file also computes its signature in the same pass, so that a later version is sent as
    a delta. An unreadable or unwritable cache is ignored. Call `save` at the end. Threads may share
    a cache; entries of other processes are kept.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or fleet_home() / "hashes.json"
        self._known: dict[str, str] | None = None
        self._new: dict[str, str] = {}
        self._lock = threading.Lock()

    def known(self, path: Path) -> str | None:
        """Return the hash if it is cached, without reading the file. Raises OSError."""
        stat = path.stat()
        return None if stat.st_size < MIN_BYTES else self._find(_key(path, stat))

    def sha256(self, path: Path, signing: Signing | None = None) -> str:
        """Return the hash of a file. Other threads may watch the `signing`. Raises OSError."""
        stat = path.stat()
        if stat.st_size < MIN_BYTES:
            return sha256_file(path)
        key = _key(path, stat)
        known = self._find(key)
        if known is not None:
            return known
        digest, signature = hash_and_sign(path, signing=signing)
        Signatures().save(digest, signature)
        if settled(stat):  # a change in the meantime has another ctime
            with self._lock:
                self._new[key] = digest
        return digest

    def holding(self, sha256: str) -> Path | None:
        """Return a file that had this hash and has not changed since, None if none is known."""
        for key in [key for key, digest in self._read().items() if digest == sha256]:
            path = Path(key.rsplit("|", 4)[0])
            with contextlib.suppress(OSError):
                if _key(path, path.stat()) == key:
                    return path
        return None

    def save(self) -> None:
        """Save the new hashes, and drop the oldest entries."""
        with self._lock:
            if not self._new:
                return
            entries = {**self._read(), **self._new}
            entries = dict(list(entries.items())[-_MAX_ENTRIES:])
            if write_whole(self._path, json.dumps(entries).encode()):
                self._known, self._new = entries, {}

    def _find(self, key: str) -> str | None:
        with self._lock:
            if self._known is None:
                self._known = self._read()
            return self._new.get(key) or self._known.get(key)

    def _read(self) -> dict[str, str]:
        try:
            entries = json.loads(self._path.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        ok = isinstance(entries, dict) and all(
            isinstance(digest, str) for digest in entries.values()
        )
        return entries if ok else {}


class Hashing:
    """The SHA-256 of one file, computed in a thread while its bytes are already being sent.

    It uses a `HashCache`, which is saved as soon as the hash is known; a cached file is not read.
    At most two files are read at a time. The threads do not keep the process alive.
    """

    def __init__(self, path: Path, cache: HashCache | None = None) -> None:
        self.path = path
        self.signing = Signing()
        self._cache = cache or HashCache()
        self._future: Future[str] = Future()
        self._lock = threading.Lock()
        self._started = False

    def start(self) -> Hashing:
        """Start hashing; a second call does nothing. A cached hash is available on return."""
        with self._lock:
            if self._started:
                return self
            self._started = True
        try:
            known = self._cache.known(self.path)
        except OSError as error:
            self._future.set_exception(error)
            return self
        if known is not None:
            self._future.set_result(known)
            return self
        threading.Thread(target=self._work, daemon=True, name="fleet-hash").start()
        return self

    @property
    def done(self) -> bool:
        """True if `result` would return at once."""
        return self._future.done()

    def result(self) -> str:
        """Wait for the hash and return it as lower-case hex. Raises OSError."""
        return self.start()._future.result()

    def _work(self) -> None:
        try:
            with _AT_ONCE:
                digest = self._cache.sha256(self.path, self.signing)
            self._cache.save()
        except BaseException as error:  # noqa: BLE001 - raised by `result`
            self._future.set_exception(error)
        else:
            self._future.set_result(digest)
        finally:
            self.signing.end()


def settled(stat: os.stat_result) -> bool:
    """Return True if a change now would alter the mtime: the last one is over a clock tick ago."""
    return abs(time.time() - stat.st_mtime) > _SETTLED_SECONDS


def state_of(stat: os.stat_result) -> str:
    """Return size, mtime, inode and ctime, which change whenever the content may have changed."""
    return f"{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ino}|{stat.st_ctime_ns}"


def _key(path: Path, stat: os.stat_result) -> str:
    return f"{path.absolute()}|{state_of(stat)}"


def ref(name: str, path: Path, cache: HashCache, hashes: bool) -> FileRef:
    """Return a file of the bundle; without `hashes` its sha256 is empty."""
    return FileRef(path, name, path.stat().st_size, cache.sha256(path) if hashes else "")
