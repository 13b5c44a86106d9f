"""Releases on a device that has Python: what is there, stage, switch, prune; and the program.

The same as state.sh, stage.sh, switch.sh and prune.sh, with the same answers, in one process:
2,000 files took those 0.7 s on a lab board. argv: `receive <base>`: the stream of
fleet_hand.py; in it also `stage <name> <id> <run> <bytes of the list> <of env.sh> <of the
manifest>` with those, `switch <name> <id> <run>` and `prune <name> <keep>`.
`state <base> <name> <id> <size|hash>`. `ahead <base> <name>`: of each
line `<key> <size> <name>` (tabs) that may be sent before its hash is known, how much is there, and
of the others, `old <key> <blob> <bytes>`, what the live release has under the name.
`sign <file> <bytes>`.
"""

import os
import sys

from fleet.device.store.fleet_disk import flush, remove, sign, whole
from fleet.device.store.fleet_hand import EndedError, Store
from fleet.device.store.fleet_seal import (
    beginning,
    link_of,
    say,
    seal,
    target,
    text_of,
    untouched,
)
from fleet.device.store.fleet_spare import HEX, names
from fleet.device.store.fleet_spare import keep as keep_spares
from fleet.device.store.fleet_stream import Input


def files_in(folder: str) -> "set[str]":
    """Names of the regular files in it, without asking for each."""
    if not os.path.isdir(folder):
        return set()
    with os.scandir(folder) as entries:
        return {one.name for one in entries if one.is_file(follow_symlinks=False)}


def put(path: str, text: "str | memoryview", new: str = "") -> None:
    """A small file, whole or not at all. `new`: its name until then, else `<path>.new`."""
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    new = new or path + ".new"
    if os.path.lexists(new):
        os.unlink(new)
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with open(file, "wb") as stream:
        stream.write(data)
    os.replace(new, path)


def link(path: str, to: str, new: str) -> None:
    """A link in place of whatever is there, in one rename."""
    if os.path.lexists(new):
        os.unlink(new)
    os.symlink(to, new)
    if os.path.isdir(path) and not os.path.islink(path):
        remove(path)
    os.rename(new, path)


class Releases:
    """The folders of one release name under a base folder."""

    def __init__(self, base: str, name: str) -> None:
        self.base, self.name = base, name
        self.folder = f"{base}/releases/{name}"
        self.live = f"{base}/current/{name}"
        self.history = f"{base}/history/{name}"

    def state(self, release_id: str, how: str, stream: Input) -> None:
        """What is there of one release."""
        lines = beginning(self.base, self.name, release_id)
        if how != "hash" and untouched(lines, self.base, self.name, release_id):
            lines.append("sealed")
        else:
            lines += self.files(f"{self.folder}/{release_id}", target(self.live), how, stream)
        say(*lines, "end")

    def files(self, rel: str, now: str, how: str, stream: Input) -> "list[str]":
        """Of each file of the list what is there of it."""
        lines: list[str] = []
        seen: set[str] = set()
        try:
            made = os.stat(f"{rel}/.installed").st_mtime_ns
        except OSError:
            made = 0
        staged = os.path.isdir(rel)
        while True:
            sha, _, rest = stream.line().partition("\t")
            if not sha:
                return lines + [f"spare {one}" for one in names(f"{self.base}/store")]
            size, key, name = rest.split("\t", 2)
            blob, path = f"{self.base}/store/{sha}", f"{rel}/{name}"
            if staged and not (os.path.exists(path) and link_of(path) == blob):
                lines.append(f"unlinked {sha}")
            if sha in seen:
                continue
            seen.add(sha)
            lines += self.blob((sha, int(size), key, name), now)
            if self.doubtful(blob, made, how) and whole(blob) != sha:
                lines.append(f"bad {sha}")

    @staticmethod
    def doubtful(blob: str, made: int, how: str) -> bool:
        """Whether a blob is to be hashed: `made` is when the release was switched to, ns or 0."""
        try:
            found = os.lstat(blob)
        except OSError:
            return False
        young = made != 0 and found.st_mtime_ns > made
        return found.st_mode & 0o170000 == 0o100000 and (how == "hash" or young)

    def ahead(self, stream: Input) -> None:
        """A file whose size a blob has, or whose name the live release, may need no sending."""
        sizes: set[int] = set()
        store = f"{self.base}/store"
        if os.path.isdir(store):
            with os.scandir(store) as entries:
                blobs = [one for one in entries if not one.name.endswith(".part")]
                sizes.update(one.stat(follow_symlinks=False).st_size for one in blobs)
        lines = ["fleet-ahead 1"]
        spares: list[str] = []
        while True:
            key, _, rest = stream.line().partition("\t")
            if not key:
                break
            size, _, name = rest.partition("\t")
            part = f"{store}/{key}.part"
            have = os.path.getsize(part) if os.path.isfile(part) else 0
            old = self.blob_of(f"{self.live}/{name}")
            if old:
                lines.append(f"old {key} {old} {have}")
                spares = spares or [f"spare {one}" for one in names(store)]
            elif int(size) not in sizes and not os.path.lexists(f"{self.live}/{name}"):
                lines.append(f"{key} {have}")
        say(*lines, *spares, "end")

    def blob(self, entry: "tuple[str, int, str, str]", now: str) -> "list[str]":
        """What is there of one blob: its hash, size, name of an early part, and file name."""
        sha, size = entry[:2]
        try:
            found = os.lstat(f"{self.base}/store/{sha}")
        except OSError:
            return self.lacking(entry, now)
        if found.st_mode & 0o170000 == 0o100000:
            return [f"have {sha}" if found.st_size == size else f"bad {sha}"]
        return []

    def lacking(self, entry: "tuple[str, int, str, str]", now: str) -> "list[str]":
        """How far it came, and what the live release has under its name."""
        sha, size, key, name = entry
        lines = []
        part, early = f"{self.base}/store/{sha}.part", f"{self.base}/store/{key}.part"
        if os.path.isfile(part):
            lines.append(f"part {sha} {os.path.getsize(part)}")
        elif os.path.isfile(early):
            lines.append(f"part {sha} {os.path.getsize(early)} {key}")
        if now and size >= 1_000_000:
            old = self.blob_of(f"{self.live}/{name}")
            if old:
                lines.append(f"base {sha} {old}")
        return lines

    def blob_of(self, path: str) -> str:
        """The blob that a link of a release leads to, "" where it is gone."""
        top, _, sha = link_of(path).rpartition("/")
        blob = f"{top}/{sha}"
        there = top == f"{self.base}/store" and os.path.isfile(blob) and not os.path.islink(blob)
        return sha if there and set(sha) <= HEX else ""

    def stage(self, words: "list[str]", stream: Input) -> None:
        """A release folder of links into the store, beside the live one."""
        release_id, run = words[2], words[3]
        listed, env, manifest = (stream.take(int(one)) for one in words[4:7])
        rel, new = f"{self.folder}/{release_id}", f"{self.folder}/.stage-{run}"
        for folder in (self.folder, f"{self.base}/current", f"{self.base}/history"):
            os.makedirs(folder, exist_ok=True)
        remove(new)
        fresh = not os.path.isdir(rel)
        place = new if fresh else rel
        os.makedirs(place, exist_ok=True)
        blobs = files_in(f"{self.base}/store")
        for line in str(listed, "utf-8", "surrogateescape").splitlines():
            kind, one, *two = line.split("\t")
            if kind == "d":
                folder = f"{place}/{one}"
                if os.path.islink(folder) or os.path.isfile(folder):
                    os.unlink(folder)
                os.makedirs(folder, exist_ok=True)
                continue
            blob, path = f"{self.base}/store/{one}", f"{place}/{two[0]}"
            if one not in blobs:
                raise EndedError(78, f"failed stage blob {one} of {two[0]} is gone")
            if fresh:
                os.symlink(blob, path)
            elif link_of(path) != blob:
                link(path, blob, f"{rel}/.new-link")
        put(f"{place}/env.sh", env)
        put(f"{place}/manifest.json", manifest)
        if fresh:
            os.rename(new, rel)
        say("staged")

    def note(self, release_id: str) -> None:
        """A line of the history; whole or not at all."""
        new = f"{self.base}/history/.{self.name}.new"  # <name>.new may be another release's
        put(self.history, text_of(self.history) + release_id + "\n", new)

    def sweep(self) -> None:
        """What a kill left of switches of this name; see switch.sh."""
        folder = f"{self.base}/current"
        for one in os.listdir(folder):
            path, by_ln = f"{folder}/{one}", one[:-6] == f"{self.name}_"
            ours = link_of(path).startswith(f"../releases/{self.name}/")
            empty = not os.path.islink(path) and os.path.isfile(path) and not os.path.getsize(path)
            if (by_ln and (ours or empty)) or (one.startswith(f".{self.name}.") and ours):
                os.unlink(path)

    def switch(self, release_id: str, run: str) -> None:
        """Make a staged release the current one, in one rename."""
        rel = f"{self.folder}/{release_id}"
        if not os.path.isfile(f"{rel}/manifest.json"):
            raise EndedError(78, f"failed switch release {release_id} is not there")
        # A switch that was killed before its line: what is live would be unknown to prune.
        now = target(self.live)
        last = text_of(self.history).splitlines()[-1:]
        if now and last != [now]:
            self.note(now)
        put(f"{rel}/.installed", release_id + "\n")
        try:
            put(f"{rel}/.seal", seal(rel))
        except OSError:
            remove(f"{rel}/.seal")
        flush(rel)
        self.sweep()
        link(
            self.live,
            f"../releases/{self.name}/{release_id}",
            f"{self.base}/current/.{self.name}.{run}",
        )
        if target(self.live) != release_id:
            raise EndedError(74, f"failed switch {self.live} does not lead to {release_id}")
        flush(f"{self.base}/current")
        if release_id != now:
            self.note(release_id)
        say("switched")

    def prune(self, keep: int) -> None:
        """Remove releases beyond the newest, and blobs that no release links to."""
        now = target(self.live)
        if not now or not os.path.isfile(f"{self.folder}/{now}/manifest.json"):
            say("unpruned cannot tell which release is current; nothing was removed")
            return
        stay = [now]
        for one in reversed(text_of(self.history).splitlines()):
            there = one and set(one) <= HEX and os.path.isdir(f"{self.folder}/{one}")
            if there and one not in stay and len(stay) < max(keep, 2):
                stay.append(one)
        stay.append(target(f"{self.base}/serve/{self.name}/release"))
        for one in os.listdir(self.folder):
            if one not in stay and (one.startswith(".stage-") or not one.startswith(".")):
                remove(f"{self.folder}/{one}")
        remove(f"{self.base}/store/.batch.part")
        used: set[str] = set()
        for top, folders, files in os.walk(f"{self.base}/releases", onerror=fail):
            used.update(target(f"{top}/{one}") for one in (*folders, *files))
        used = {one for one in used if one and set(one) <= HEX}
        store, loose = f"{self.base}/store", []
        for one in os.listdir(store):
            kept = one.endswith(".part") and not one.startswith("late-")
            if one not in used and not kept and os.path.isfile(f"{store}/{one}"):
                loose.append(one)
        keep_spares(store, loose)
        say("pruned")


def fail(error: OSError) -> None:
    """A folder that cannot be read: what is in use is unknown then."""
    raise error


def receive(base: str) -> int:
    """The stream, to its end."""
    stream = Input()
    try:
        store = Store(base, stream)
    except OSError as error:
        say(f"failed - {error.filename}: {error.strerror}")
        return 74
    step = "-"
    while True:
        words = stream.line().split()
        if not words:
            return 77 if store.bad else 0
        step = words[0] if words[0] in {"stage", "switch", "prune"} else "-"
        try:
            act(base, words, stream, store)
        except EndedError as end:
            say(end.line)
            return end.status
        except ImportError as error:
            say(f"failed - {error}")
            return 74
        except OSError as error:
            told = f"{error.filename or base}: {error.strerror}"
            say(f"unpruned {told}" if step == "prune" else f"failed {step} {told}")
            if step != "prune":
                return 74


def act(base: str, words: "list[str]", stream: Input, store: Store) -> None:
    """One frame of the stream. After a blob that is bad no release is made of what is there."""
    if words[0] == "files":
        store.files(int(words[2]), int(words[3]))
    elif words[0] not in {"stage", "switch", "prune"}:
        store.blob(words)
    elif store.bad:
        raise EndedError(77, "held")
    elif words[0] == "stage":
        Releases(base, words[1]).stage(words, stream)
    elif words[0] == "switch":
        Releases(base, words[1]).switch(words[2], words[3])
    else:
        Releases(base, words[1]).prune(int(words[2]))


def main(what: str, *args: str) -> int:
    """The exit status."""
    os.umask(0o022)
    try:
        if what == "receive":
            return receive(args[0])
        if what == "state":
            Releases(args[0], args[1]).state(args[2], args[3], Input())
        elif what == "ahead":
            Releases(args[0], args[1]).ahead(Input())
        else:
            sign(args[0], args[1])
    except OSError as error:
        sys.stderr.write(f"{error.filename}: {error.strerror}\n")
        return 74
    return 0
