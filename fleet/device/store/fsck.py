"""Lists a base folder and hashes its blobs; Python 3.7 or newer. Same interface as fsck.sh.

argv: `list <base> - -`, `look <base> <blocks of 64 KiB a second, 0: any> -`, `aside <base> <blocks>
<word>`, `passed <base> - <word>`. See fsck.sh for the answers. Only the last two write.
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
    """A hasher of blobs with a rate limit and progress reports."""

    def __init__(self, store: str, rate: int) -> None:
        """Prepare the hasher. `rate` is in bytes per second, 0 for no limit."""
        self.store, self.rate = store, rate
        self.view = memoryview(bytearray(PIECE))
        self.began = self.reported = time.monotonic()
        self.read = 0

    def hash(self, sha: str) -> str:
        """Return the hash of a blob's content, "" if it cannot be read."""
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
        """Report the progress once per second, and wait if the rate is too high."""
        while True:
            now = time.monotonic()
            if now - self.reported >= BEAT_SECONDS:
                say(f"at {sha} {done}")
                self.reported = now
            early_seconds = self.read / self.rate - (now - self.began) if self.rate else 0.0
            if early_seconds <= 0:
                return
            time.sleep(min(early_seconds, BEAT_SECONDS))


def entries(folder: str) -> "list[str]":
    """Return the names in a folder without hidden ones, [] if the folder is missing."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(name for name in names if name[:1] != ".")


def blobs(store: str) -> "dict[int, tuple[str, int]]":
    """Return inode → name and size of each blob."""
    known = {}
    for name in entries(store):
        if is_hash(name) and is_file(f"{store}/{name}"):
            status = os.lstat(f"{store}/{name}")
            known[status.st_ino] = name, status.st_size
    return known


def links(
    system: PosixLinks, store: str, rel: str, known: "dict[int, tuple[str, int]]"
) -> "Iterator[str]":
    """Yield `<target><TAB><name>` for each file of a release that is a link."""
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
    """Print the live releases, the histories, and each release with its links."""
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
            found_links = links(system, f"{base}/store", rel, known)
            say(*lines, *(f"link {name} {release} {link}" for link in found_links))


def aside(base: str, sha: str, word: str, reader: Reader) -> None:
    """Quarantine a blob whose content does not match its name."""
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
    """Lower the priority for processor and disk."""
    if hasattr(os, "nice"):
        os.nice(19)
        words = ["ionice", "-c", "3", "-p", str(os.getpid())]
        try:
            os.waitpid(os.posix_spawnp(words[0], words, os.environ), 0)
        except (OSError, AttributeError):
            return


def main(what: str, base: str, blocks: str, word: str, *_: str) -> int:
    """Run the check on POSIX and return the exit status."""
    return check(PosixLinks(), what, base, blocks, word)


def check(system: PosixLinks, what: str, base: str, blocks: str, word: str) -> int:
    """Run `list`, `look`, `aside` or `passed` (`what`) on any system; return the exit status."""
    say("fleet-fsck 1")
    try:
        if what == "passed":
            system.put(f"{base}/fsck", word + "\n")
            say("end")
            return 0
        store = f"{base}/store"
        if what == "list":
            known = blobs(store)
            releases(system, base, known)
            say(*(f"blob {size} {sha}" for sha, size in known.values()), "end")
            return 0
        idle()
        reader = Reader(store, int(blocks) * BLOCK)
        if what == "aside":
            for line in sys.stdin.buffer.read().decode("ascii", "replace").split():
                aside(base, line, word, reader)
        else:
            known = blobs(store)
            releases(system, base, known)
            say(*(f"blob {size} {sha}" for sha, size in known.values()))
            for sha, _ in known.values():
                got = reader.hash(sha)
                if got:
                    say(f"hash {sha} {got}")
    except OSError as error:
        sys.stderr.write(f"{error.filename or base}: {error.strerror}\n")
        return 74
    say("end")
    return 0
