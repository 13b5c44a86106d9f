"""SHA-256 of the small files of a folder, kept together: a folder of thousands is pushed often."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import xxhash

from fleet.content.caches import keep_newest, write_whole
from fleet.content.hashes import MIN_BYTES, HashCache, settled, state_of
from fleet.model.files import contents
from fleet.model.home import fleet_home

_HEAD = b"fleet-tree-1"
_KEPT = 50  # folders; 2,000 files take 0.3 MB


class TreeHashes:
    """name, size, mtime, inode and ctime → SHA-256, one file for each folder that was pushed.

    It is read when that folder is asked about and holds what is in it now, nothing more. Large
    files are left to `large`, which every command shares. A cache only, as `HashCache` is: an
    unreadable, damaged or unwritable one is passed over. Call `save` at the end.
    """

    def __init__(self, root: Path, large: HashCache, kept: Path | None = None) -> None:
        self._large = large
        name = xxhash.xxh3_128_hexdigest(os.fsencode(root.absolute()))
        self._path = (kept or fleet_home() / "trees") / name
        self._known = self._read()
        self._now: dict[str, str] = {}

    def knows(self, name: str, stat: os.stat_result) -> bool:
        """Whether the hash of that small file is here."""
        return self._known.get(name, "").startswith(_key(stat))

    def sha256(self, name: str, path: str | Path, stat: os.stat_result) -> tuple[str, bytes | None]:
        """The hash of the file `name` of the folder, and its content where that was read for it
        in one piece; `stat` is from before. Raises OSError.
        """
        if stat.st_size >= MIN_BYTES:
            return self._large.sha256(Path(path)), None
        key = _key(stat)
        known = self._known.get(name, "")
        if known.startswith(key):
            self._now[name] = known
            return known[len(key) :], None
        data = contents(path)
        digest = hashlib.sha256(data).hexdigest()
        if settled(stat):
            self._now[name] = key + digest
        return digest, data

    def save(self) -> None:
        """Keep what is there now; the folders that changed longest ago fall out."""
        if self._now == self._known:
            return
        text = json.dumps(self._now).encode()
        sum_of = xxhash.xxh3_64_hexdigest(text).encode()
        if write_whole(self._path, b"%s %s\n%s" % (_HEAD, sum_of, text)):
            self._known = self._now
            keep_newest(self._path.parent, _KEPT)

    def _read(self) -> dict[str, str]:
        """What was saved; the sum says that we wrote it and that it is whole."""
        try:
            head, _, text = self._path.read_bytes().partition(b"\n")
        except OSError:
            return {}
        if head != b"%s %s" % (_HEAD, xxhash.xxh3_64_hexdigest(text).encode()):
            return {}
        found: dict[str, str] = json.loads(text)
        return found


def _key(stat: os.stat_result) -> str:
    return f"{state_of(stat)}|"
