"""What collect.sh sends: files of a work folder, back from one stream."""

from __future__ import annotations

from pathlib import PurePosixPath

LARGEST = 256 << 20  # bytes in memory for one run; results of a graph are some MB
LONGEST_LINE = 8192  # `file <bytes> <name>`: a path has 4096 bytes at most
_DIGITS = 18


def safe(name: str) -> bool:
    """Whether a name that a device gave stays below the folder where it is put."""
    path = PurePosixPath(name)
    inside = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
    return inside and name.isprintable()


class FileStream:
    """Reads `file <bytes> <name>` lines with the bytes and a newline behind each, in any chunks.

    What stands between files goes to `line`; a file's pieces go to `put` between `begin` and
    `finish`.
    """

    def __init__(self) -> None:
        self._line = bytearray()
        self._left = 0  # bytes of the file that are still to come, and its newline

    def take(self, chunk: bytes) -> None:
        """Some bytes after the mark."""
        view = memoryview(chunk)
        while view:
            view = view[self._content(view) :] if self._left else view[self._head(view) :]

    def begin(self, size: int, name: str) -> None:
        """A file of `size` bytes begins."""
        raise NotImplementedError

    def put(self, piece: memoryview) -> None:
        """Some bytes of it."""
        raise NotImplementedError

    def finish(self) -> None:
        """All of it has come."""
        raise NotImplementedError

    def line(self, words: list[str]) -> None:
        """A line that begins no file."""
        raise NotImplementedError

    def _content(self, view: memoryview) -> int:
        """Bytes of the file; the last one is the newline behind it."""
        taken = view[: self._left]
        self._left -= len(taken)
        self.put(taken if self._left else taken[:-1])
        if not self._left:
            self.finish()
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
        if words[0] != "file" or len(words) != 3:
            self.line(words)
        elif words[1].isascii() and words[1].isdigit() and len(words[1]) <= _DIGITS:
            self._left = int(words[1]) + 1
            self.begin(int(words[1]), words[2])


class Collected(FileStream):
    """Takes the stream in any chunks. `files` are name → content, `whole` when the end came.

    The device is not believed: names that lead elsewhere, and what is beyond LARGEST, are left
    out while they arrive. A file that was announced longer than what came is none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, bytes] = {}
        self.whole = False
        self._file: bytearray | None = None
        self._name = ""
        self._kept = 0

    def begin(self, size: int, name: str) -> None:
        """See FileStream."""
        self._name = str(PurePosixPath(name))
        self._file = bytearray() if safe(name) and self._kept + size <= LARGEST else None

    def put(self, piece: memoryview) -> None:
        """See FileStream."""
        if self._file is not None:
            self._file += piece

    def finish(self) -> None:
        """See FileStream."""
        if self._file is not None:
            self._kept += len(self._file)
            self.files[self._name] = bytes(self._file)
            self._file = None

    def line(self, words: list[str]) -> None:
        """See FileStream."""
        self.whole = self.whole or words[0] == "end"
