"""A reader for the output of collect.sh: files of a work folder in one stream."""

from __future__ import annotations

from pathlib import PurePosixPath

LARGEST = 256 << 20  # bytes in memory for one run; the results of a graph are some MB
LONGEST_LINE = 8192  # `file <bytes> <name>`: a path has at most 4096 bytes
_DIGITS = 18


def safe(name: str) -> bool:
    """Return True if a name from a device stays below the folder where the file is put."""
    path = PurePosixPath(name)
    inside = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
    return inside and name.isprintable()


class FileStream:
    """A reader of `file <bytes> <name>` lines, each followed by the bytes and a newline.

    Chunks may have any size. Other lines go to `line`. The pieces of a file go to `put`, between
    `begin` and `finish`.
    """

    def __init__(self) -> None:
        self._line = bytearray()
        self._left = 0  # remaining bytes of the file with its newline

    def take(self, chunk: bytes) -> None:
        """Process the next chunk of the output after the mark."""
        view = memoryview(chunk)
        while view:
            view = view[self._content(view) :] if self._left else view[self._head(view) :]

    def begin(self, size: int, name: str) -> None:
        """Begin the file `name` of `size` bytes."""
        raise NotImplementedError

    def put(self, piece: memoryview) -> None:
        """Add the next bytes of the file."""
        raise NotImplementedError

    def finish(self) -> None:
        """End the file after its last byte."""
        raise NotImplementedError

    def line(self, words: list[str]) -> None:
        """Process the words of a line that does not begin a file."""
        raise NotImplementedError

    def _content(self, view: memoryview) -> int:
        """Process bytes of the file; the last one is the newline after it."""
        taken = view[: self._left]
        self._left -= len(taken)
        self.put(taken if self._left else taken[:-1])
        if not self._left:
            self.finish()
        return len(taken)

    def _head(self, view: memoryview) -> int:
        """Process a line between two files."""
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
    """The collected files. `files` maps names to contents, `whole` is True after the end mark.

    The device is not trusted: names that lead outside and data beyond LARGEST are dropped on
    arrival. A file that is shorter than announced is dropped too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, bytes] = {}
        self.whole = False
        self._file: bytearray | None = None
        self._name = ""
        self._kept = 0

    def begin(self, size: int, name: str) -> None:
        """Begin a file; ignore an unsafe name, and bytes beyond LARGEST for all files together."""
        self._name = str(PurePosixPath(name))
        self._file = bytearray() if safe(name) and self._kept + size <= LARGEST else None

    def put(self, piece: memoryview) -> None:
        """Add bytes to a file that is not ignored."""
        if self._file is not None:
            self._file += piece

    def finish(self) -> None:
        """Store a file that is not ignored in `files`."""
        if self._file is not None:
            self._kept += len(self._file)
            self.files[self._name] = bytes(self._file)
            self._file = None

    def line(self, words: list[str]) -> None:
        """Set `whole` at the end mark."""
        self.whole = self.whole or words[0] == "end"
