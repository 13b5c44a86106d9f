"""What collect.sh sends: files of a work folder, back from one stream."""

from __future__ import annotations

from pathlib import PurePosixPath

LARGEST = 256 << 20  # bytes in memory for one run; results of a graph are some MB
LONGEST_LINE = 8192  # `file <bytes> <name>`: a path has 4096 bytes at most
_DIGITS = 18


class Collected:
    """Takes the stream in any chunks. `files` are name → content, `whole` when the end came.

    The device is not believed: names that lead elsewhere, and what is beyond LARGEST, are left
    out while they arrive. A file that was announced longer than what came is none.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.whole = False
        self._line = bytearray()
        self._file: bytearray | None = None
        self._name = ""
        self._left = 0  # bytes of the file that are still to come, and its newline
        self._kept = 0

    def take(self, chunk: bytes) -> None:
        """Some bytes after the mark."""
        view = memoryview(chunk)
        while view:
            view = view[self._content(view) :] if self._left else view[self._head(view) :]

    def _content(self, view: memoryview) -> int:
        """Bytes of the file; the last one is the newline behind it."""
        taken = view[: self._left]
        self._left -= len(taken)
        if self._file is not None:
            self._file += taken if self._left else taken[:-1]
            if not self._left:
                self._kept += len(self._file)
                self.files[self._name] = bytes(self._file)
                self._file = None
        return len(taken)

    def _head(self, view: memoryview) -> int:
        """A line between two files."""
        line, newline, _ = bytes(view[:LONGEST_LINE]).partition(b"\n")
        self._line += line[: LONGEST_LINE - len(self._line)]
        if newline:
            self._read(self._line.decode("utf-8", "replace").split(" ", 2))
            self._line.clear()
        return len(line) + len(newline)

    def _read(self, words: list[str]) -> None:
        if words[0] == "end":
            self.whole = True
        elif words[0] == "file" and len(words) == 3:
            size = words[1]
            if size.isascii() and size.isdigit() and len(size) <= _DIGITS:
                self._begin(int(size), words[2])

    def _begin(self, size: int, name: str) -> None:
        path = PurePosixPath(name)
        safe = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
        safe = safe and name.isprintable()
        self._left = size + 1
        self._name = str(path)
        self._file = bytearray() if safe and self._kept + size <= LARGEST else None
