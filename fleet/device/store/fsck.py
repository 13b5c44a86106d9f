"""What a base folder holds, each blob hashed; Python 3.7 or newer. As fsck.sh, by the same words.

argv: `list <base> - -`, `look <base> <blocks of 64 KiB a second, 0: any> -`, `aside <base>
<blocks> <word>`, `passed <base> - <word>`. See fsck.sh for the answers. Nothing is written but by
the last two.
"""

import hashlib
import os
import sys
import time

from fleet.device.store.files import PIECE, is_file
from fleet.device.store.links_posix import PosixLinks
from fleet.device.store.recycle import is_hash
from fleet.device.store.stamp import link_of, own_of, say, text_of

TYPE_CHECKING = False  # the module typing takes 10 ms
if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK = 1 << 16
BEAT_SECONDS = 1.0


class Reader:
    """Hashes blobs, not faster than it may, and says how far it is."""

    def __init__(self, store: str, rate: int) -> None:
        """`rate` in bytes a second, 0 for as fast as it goes."""
        self.store, self.rate = store, rate
        self.view = memoryview(bytearray(PIECE))
        self.began = self.told = time.monotonic()
        self.read = 0

    def hash(self, sha: str) -> str:
        """That of the content, "" where it cannot be read."""
        digest, done = hashlib.sha256(), 0
        try:
            with open(f"{self.store}/{sha}", "rb", buffering=0) as stream:
                while True:
                    count = stream.readinto(self.view)
                    if not count:
                        return digest.hexdigest()
                    digest.update(self.view[:count])
                    done += count
                    self.read += count
                    self.beat(sha, done)
        except OSError:
            return ""

    def beat(self, sha: str, done: int) -> None:
        """Say it once a second; wait where it went too fast."""
        while True:
            now = time.monotonic()
            if now - self.told >= BEAT_SECONDS:
                say(f"at {sha} {done}")
                self.told = now
            early_seconds = self.read / self.rate - (now - self.began) if self.rate else 0.0
            if early_seconds <= 0:
                return
            time.sleep(min(early_seconds, BEAT_SECONDS))


def entries(folder: str) -> "list[str]":
    """Names in it, hidden ones left out; [] without it."""
    found = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(name for name in found if name[:1] != ".")


def blobs(store: str) -> "dict[int, tuple[str, int]]":
    """inode → name and size of each."""
    found = {}
    for name in entries(store):
        if is_hash(name) and is_file(f"{store}/{name}"):
            seen = os.lstat(f"{store}/{name}")
            found[seen.st_ino] = name, seen.st_size
    return found


def links(
    system: PosixLinks, store: str, rel: str, known: "dict[int, tuple[str, int]]"
) -> "Iterator[str]":
    """`<where it leads><TAB><name>` of each file of a release that is a link."""
    for top, folders, names in os.walk(rel):
        for name in sorted((*folders, *names)):
            path = f"{top}/{name}"
            to = link_of(path)
            if not to and not system.posix:
                blob = known.get(os.lstat(path).st_ino)
                to = f"{store}/{blob[0]}" if blob else ""
            if to and "\n" not in to + path:
                yield f"{to}\t{path[len(rel) + 1 :]}"


def releases(system: PosixLinks, base: str, known: "dict[int, tuple[str, int]]") -> None:
    """What is live, what was, and each release with its links."""
    for name in entries(f"{base}/current"):
        say(f"current {name} {system.live(base, name) or '-'}")
    for name in entries(f"{base}/history"):
        for past in text_of(f"{base}/history/{name}").splitlines():
            say(f"history {name} {past}")
    for name in entries(f"{base}/releases"):
        for release in entries(f"{base}/releases/{name}"):
            rel = f"{base}/releases/{name}/{release}"
            if not os.path.isdir(rel):
                continue
            own = own_of(base, name, release)
            whole = is_file(f"{own}/.installed")
            lines = [f"release {name} {release} {'installed' if whole else 'staged'}"]
            if is_file(f"{own}/manifest.json"):
                text = " ".join(text_of(f"{own}/manifest.json").split("\n"))
                lines.append(f"manifest {name} {release} {text}")
            found = links(system, f"{base}/store", rel, known)
            say(*lines, *(f"link {name} {release} {link}" for link in found))


def aside(base: str, sha: str, word: str, reader: Reader) -> None:
    """A blob whose name lies is put aside."""
    blob, to = f"{base}/store/{sha}", f"{base}/quarantine/{sha}-{word}"
    if not is_hash(sha) or not is_file(blob):
        say(f"gone {sha}")
    elif reader.hash(sha) == sha:
        say(f"kept {sha}")
    else:
        os.makedirs(f"{base}/quarantine", exist_ok=True)
        while os.path.lexists(to):
            to += "-"
        os.rename(blob, to)
        say(f"aside {sha}")


def idle() -> None:
    """Whoever else wants the processor or the disk comes first."""
    if hasattr(os, "nice"):
        os.nice(19)
        words = ["ionice", "-c", "3", "-p", str(os.getpid())]
        try:
            os.waitpid(os.posix_spawnp(words[0], words, os.environ), 0)
        except (OSError, AttributeError):
            return


def main(what: str, base: str, blocks: str, word: str, *_: str) -> int:
    """The exit status."""
    return check(PosixLinks(), what, base, blocks, word)


def check(system: PosixLinks, what: str, base: str, blocks: str, word: str) -> int:
    """The same on any system."""
    say("fleet-fsck 1")
    try:
        if what == "passed":
            system.put(f"{base}/fsck", word + "\n")
            say("end")
            return 0
        store = f"{base}/store"
        if what == "list":
            found = blobs(store)
            releases(system, base, found)
            say(*(f"blob {size} {sha}" for sha, size in found.values()), "end")
            return 0
        idle()
        reader = Reader(store, int(blocks) * BLOCK)
        if what == "aside":
            for line in sys.stdin.buffer.read().decode("ascii", "replace").split():
                aside(base, line, word, reader)
        else:
            found = blobs(store)
            releases(system, base, found)
            say(*(f"blob {size} {sha}" for sha, size in found.values()))
            for sha, _ in found.values():
                got = reader.hash(sha)
                if got:
                    say(f"hash {sha} {got}")
    except OSError as error:
        sys.stderr.write(f"{error.filename or base}: {error.strerror}\n")
        return 74
    say("end")
    return 0
