"""What collect.sh sends: files of a work folder, back from one stream."""

from __future__ import annotations

from pathlib import PurePosixPath

LARGEST = 256 << 20  # bytes in memory for one run; results of a graph are some MB


class Collected:
    """Takes the stream in any chunks. `files` are name → content, `whole` when the end came."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.whole = False
        self._rest = bytearray()
        self._name = ""
        self._left = -1
        self._kept = 0

    def take(self, chunk: bytes) -> None:
        """Some bytes after the mark."""
        self._rest += chunk
        while self._step():
            pass

    def _step(self) -> bool:
        if self._left >= 0:
            if len(self._rest) <= self._left:
                return False
            data = bytes(self._rest[: self._left])
            del self._rest[: self._left + 1]
            self._keep(data)
            return True
        line, newline, _ = self._rest.partition(b"\n")
        if not newline:
            return False
        del self._rest[: len(line) + 1]
        words = line.decode("utf-8", "replace").split(" ", 2)
        if words[0] == "end":
            self.whole = True
        elif words[0] == "file" and len(words) == 3 and words[1].isascii() and words[1].isdigit():
            self._left, self._name = int(words[1]), words[2]
        return True

    def _keep(self, data: bytes) -> None:
        self._left = -1
        self._kept += len(data)
        path = PurePosixPath(self._name)
        safe = not path.is_absolute() and ".." not in path.parts and self._name.isprintable()
        if safe and self._kept <= LARGEST:
            self.files[str(path)] = data
