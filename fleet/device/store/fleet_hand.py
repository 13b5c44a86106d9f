"""Takes blobs from standard input into the store and hashes them on the way; Python 3.7 or newer.

One process where a shell needs three for each file, and two copies of every byte less: 1 GiB with
its SHA-256 took 1.1 times as long as a bare `cat`, beside 1.8 for `tee` into the same hash (lab
board). The stream is that of receive.sh (fleet/ops/frames.py), and so are the answers; but it is
`patch:<old blob>:<spare>`, `-` for none, where that has `delta:`. Besides there is
`files <count> <bytes of the list> <bytes>`: small blobs, a list of `<sha256> <size> <mode>` and
then their contents; a blob named `?`, whose hash follows its bytes: `is <sha256>`; and a ninth
word, the name of the part.
"""

import hashlib
import os

from fleet.device.store.fleet_disk import PIECE, flush, remove, small
from fleet.device.store.fleet_patch import BLOCK, Patch
from fleet.device.store.fleet_seal import say
from fleet.device.store.fleet_spare import give_way, take
from fleet.device.store.fleet_stream import Input, Writer

TYPE_CHECKING = False  # the module typing takes 10 ms
if TYPE_CHECKING:
    from collections.abc import Sequence


class EndedError(Exception):
    """Nothing more is done. The status tells why, as that of receive.sh."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status
        self.line = line


class Store:
    """Where blobs are by their SHA-256."""

    def __init__(self, base: str, stream: Input) -> None:
        self.path = base + "/store"
        self.stream = stream
        self.bad = False
        os.makedirs(self.path, exist_ok=True)

    def blob(self, words: "Sequence[str]") -> None:
        """One blob, or a part of it: words as in receive.sh."""
        sha, coding = words[0], words[6]
        size, offset, end = int(words[1]), int(words[2]), int(words[7])
        part = begun = f"{self.path}/{words[8] if len(words) > 8 else sha}.part"
        base, spare = coding[6:].split(":") if coding.startswith("patch:") else ("", "-")
        if spare == "-":
            give_way(self.path, size - offset)
        else:
            part = begun[: -len(".part")] + ".over"  # what is in it says nothing of its bytes
        self.ready(part, sha, offset)
        try:
            if base:
                own = take(self.path, spare, part) if spare != "-" else -1
                out = Writer(part, False, over=own is None)
                patch = Patch(self.stream, out, part, end)
                got, cut = patch.apply(f"{self.path}/{base}", own), not patch.stopped
            else:
                out, cut = Writer(part, end == size), True
                self.body(out, words)
                got = out.hash.hexdigest() if out.hash else ""
            out.end()
            if out.size != end and spare != "-":
                os.ftruncate(out.file, out.size)
                os.rename(part, begun)
            if out.size != end and cut:
                raise EndedError(76, f"short {sha} {out.size}")
            if out.size != size:
                say(f"kept {sha}")
                return
            self.named(out, part, words, got)
        except OSError as error:
            raise EndedError(74, f"failed {sha} {error.strerror}") from error

    def named(self, out: Writer, part: str, words: "Sequence[str]", got: str) -> None:
        """All of it is there: by its name, when its hash is right."""
        sha = words[0]
        if sha == "?":
            sha = self.stream.line()[3:]
            if not sha:
                raise EndedError(76, f"short ? {out.size}")
            if self.has(sha, out.size):
                os.unlink(part)
                say(f"ok {sha}")
                return
        if got != sha:
            say(f"bad {sha} {got}")
            self.bad = True
            os.close(out.file)
            os.unlink(part)
            return
        os.fchmod(out.file, int(words[3], 8))
        os.fsync(out.file)
        os.close(out.file)
        os.rename(part, f"{self.path}/{sha}")
        say(f"ok {sha}")

    def ready(self, part: str, sha: str, offset: int) -> None:
        """A link, folder or pipe that stands there is not ours: nothing is written through it."""
        have = 0
        if os.path.islink(part) or not os.path.isfile(part):
            remove(part)
        else:
            have = os.path.getsize(part)
        if have != offset:
            if offset:
                raise EndedError(75, f"moved {sha} {have}")
            os.unlink(part)

    def has(self, sha: str, size: int) -> bool:
        """Whether the content is there by that name: its inode is what a seal knows it by."""
        path = f"{self.path}/{sha}"
        try:
            found = os.lstat(path)
        except OSError:
            return False
        return found.st_mode & 0o170000 == 0o100000 and found.st_size == size

    def body(self, out: Writer, words: "Sequence[str]") -> None:
        """The bytes of a blob, as they are or compressed."""
        coding = words[6]
        length = int(words[4]) * BLOCK + int(words[5])
        inflate = None
        if coding == "gzip":
            import zlib

            inflate = zlib.decompressobj(31)
        view = memoryview(bytearray(PIECE))
        while length:
            count = self.stream.into(view[: min(length, PIECE)])
            if not count:
                break
            length -= count
            out.write(inflate.decompress(view[:count]) if inflate else view[:count])

    def files(self, listed: int, length: int) -> None:
        """Many small blobs: first all of them on the disk, then their names."""
        index = str(self.stream.take(listed), "utf-8").splitlines()
        give_way(self.path, length)
        data = self.stream.take(length)
        if len(data) != length:
            raise EndedError(76, "short - 0")
        inside = self.path + "/.batch.part"
        try:
            remove(inside)
            os.mkdir(inside)
            right, said, at = [], [], 0
            place = os.open(inside, os.O_RDONLY)
            for entry in index:
                sha, size, mode = entry.split()
                piece, at = data[at : at + int(size)], at + int(size)
                got = hashlib.sha256(piece).hexdigest()
                if got != sha:
                    said.append(f"bad {sha} {got}")
                    continue
                small(sha, piece, int(mode, 8), place)
                right.append(sha)
            flush(inside)
            for sha in right:
                os.rename(sha, f"{self.path}/{sha}", src_dir_fd=place)
            os.close(place)
            os.rmdir(inside)
        except OSError as error:
            raise EndedError(74, f"failed - {error.strerror}") from error
        self.bad = self.bad or bool(said)
        say(*said, *[f"ok {sha}" for sha in right])
