"""The releases of a name: state, stage, switch, prune; Python 3.7 or newer.

It gives the same answers as state.sh, stage.sh, switch.sh and prune.sh in one process: 2,000 files
took those 0.7 s on a lab board. `system` defines the links on the device.
"""

import os

from fleet.device.store.files import EndedError, whole
from fleet.device.store.links_posix import PosixLinks
from fleet.device.store.recycle import HEX, names
from fleet.device.store.stamp import (
    beginning,
    link_of,
    own_of,
    say,
    stamp,
    target,
    text_of,
    untouched,
)
from fleet.device.store.stream import Input


class Releases:
    """The folders of one release name under a base folder."""

    def __init__(self, system: PosixLinks, base: str, name: str) -> None:
        self.system, self.base, self.name = system, base, name
        self.store = f"{base}/store"
        self.folder = f"{base}/releases/{name}"
        self.own = f"{base}/meta/{name}"
        self.history = f"{base}/history/{name}"

    @property
    def now(self) -> str:
        """The id of the live release, "" if there is none."""
        return self.system.live(self.base, self.name)

    def state(self, release_id: str, how: str, stream: Input) -> None:
        """Print the lines of a release; `how` is `hash` to hash all blobs."""
        lines = beginning(self.base, self.name, release_id, self.now)
        if how != "hash" and untouched(lines, self.base, self.name, release_id):
            lines.append("sealed")
        else:
            lines += self.files(release_id, how, stream)
        say(*lines, "end")

    def files(self, release_id: str, how: str, stream: Input) -> "list[str]":
        """Return the lines about each file of the list and each recyclable blob."""
        lines: list[str] = []
        checked: set[str] = set()
        rel = f"{self.folder}/{release_id}"
        try:
            made = os.stat(f"{own_of(self.base, self.name, release_id)}/.installed").st_mtime_ns
        except OSError:
            made = 0
        staged, now = os.path.isdir(rel), self.now
        while True:
            sha, _, rest = stream.line().partition("\t")
            if not sha:
                return lines + [f"spare {spare}" for spare in names(self.store)]
            size, key, name = rest.split("\t", 2)
            blob = f"{self.store}/{sha}"
            if staged and not self.system.leads(f"{rel}/{name}", blob):
                lines.append(f"unlinked {sha}")
            if sha in checked:
                continue
            checked.add(sha)
            lines += self.blob((sha, int(size), key, name), now)
            if self.doubtful(blob, made, how) and whole(blob) != sha:
                lines.append(f"bad {sha}")

    @staticmethod
    def doubtful(blob: str, made: int, how: str) -> bool:
        """Return True if a blob must be hashed. `made` is the time of the switch in ns, or 0."""
        try:
            status = os.lstat(blob)
        except OSError:
            return False
        young = made != 0 and status.st_mtime_ns > made
        return status.st_mode & 0o170000 == 0o100000 and (how == "hash" or young)

    def speculative(self, stream: Input) -> None:
        """Print which files can be sent before their hash is known.

        A file may need no transfer if a blob has its size or the live release has its name.
        """
        sizes: set[int] = set()
        store, live = self.store, f"{self.base}/current/{self.name}"
        if os.path.isdir(store):
            with os.scandir(store) as entries:
                blobs = [entry for entry in entries if not entry.name.endswith(".part")]
                sizes.update(blob.stat(follow_symlinks=False).st_size for blob in blobs)
        lines = ["fleet-ahead 1"]
        recyclable: list[str] = []
        while True:
            key, _, rest = stream.line().partition("\t")
            if not key:
                break
            size, _, name = rest.partition("\t")
            part = f"{store}/{key}.part"
            have = os.path.getsize(part) if os.path.isfile(part) else 0
            old = self.blob_of(f"{live}/{name}")
            if old:
                lines.append(f"old {key} {old} {have}")
                recyclable = recyclable or [f"spare {spare}" for spare in names(store)]
            elif int(size) not in sizes and not os.path.lexists(f"{live}/{name}"):
                lines.append(f"{key} {have}")
        say(*lines, *recyclable, "end")

    def blob(self, entry: "tuple[str, int, str, str]", now: str) -> "list[str]":
        """Return `have` or `bad` for a blob: (hash, size, name of an early part, file name)."""
        sha, size = entry[:2]
        try:
            status = os.lstat(f"{self.store}/{sha}")
        except OSError:
            return self.lacking(entry, now)
        if status.st_mode & 0o170000 == 0o100000:
            return [f"have {sha}" if status.st_size == size else f"bad {sha}"]
        return []

    def lacking(self, entry: "tuple[str, int, str, str]", now: str) -> "list[str]":
        """Return the received length of a blob, and the file with its name in the live release."""
        sha, size, key, name = entry
        lines = []
        part, early = f"{self.store}/{sha}.part", f"{self.store}/{key}.part"
        if os.path.isfile(part):
            lines.append(f"part {sha} {os.path.getsize(part)}")
        elif os.path.isfile(early):
            lines.append(f"part {sha} {os.path.getsize(early)} {key}")
        if now and size >= 1_000_000:
            old = self.blob_of(f"{self.base}/current/{self.name}/{name}")
            if old:
                lines.append(f"base {sha} {old}")
        return lines

    def blob_of(self, path: str) -> str:
        """Return the blob that a link of a release points to, "" if it is missing."""
        top, _, sha = link_of(path).rpartition("/")
        blob = f"{top}/{sha}"
        there = top == self.store and os.path.isfile(blob) and not os.path.islink(blob)
        return sha if there and set(sha) <= HEX else ""

    def stage(self, words: "list[str]", stream: Input) -> None:
        """Create a release folder of links into the store, next to the live one."""
        release_id, run = words[2], words[3]
        listed, env, manifest = (stream.take(int(size)) for size in words[4:7])
        rel, new = f"{self.folder}/{release_id}", f"{self.folder}/.stage-{run}"
        for folder in (self.folder, self.own, f"{self.base}/current", f"{self.base}/history"):
            os.makedirs(folder, exist_ok=True)
        self.system.remove(new)
        fresh = not os.path.isdir(rel) or os.path.islink(rel)
        place = f"{new}/tree" if fresh else rel
        for folder in (new, f"{new}/tree", f"{new}/own"):
            os.mkdir(folder)
        blobs = files_in(self.store)
        for line in str(listed, "utf-8", "surrogateescape").split("\n")[:-1]:
            kind, word, *name = line.split("\t")
            if kind == "d":
                folder = f"{place}/{word}"
                if os.path.islink(folder) or not os.path.isdir(folder):
                    self.system.remove(folder)
                    os.mkdir(folder)
            elif word not in blobs:
                raise EndedError(
                    78,
                    f"failed stage {name[0]} ({word[:12]}) is missing in the store of the device",
                )
            else:
                aside = "" if fresh else f"{new}/link"
                self.system.link(f"{place}/{name[0]}", f"{self.store}/{word}", aside)
        self.system.put(f"{new}/own/{self.system.env}", env)
        self.system.put(f"{new}/own/manifest.json", manifest)
        self.settle(release_id, new, fresh)
        say("staged")

    def settle(self, release_id: str, new: str, fresh: bool) -> None:
        """Move fleet's own files to meta/ first, then a `fresh` tree to its place."""
        rel, own = f"{self.folder}/{release_id}", f"{self.own}/{release_id}"
        if fresh or os.path.islink(own) or not os.path.isdir(own):
            self.system.remove(own)
        if os.path.isdir(own):
            for name in (self.system.env, "manifest.json"):
                if os.path.isdir(f"{own}/{name}"):
                    self.system.remove(f"{own}/{name}")
                self.system.rename(f"{new}/own/{name}", f"{own}/{name}")
        else:
            if not fresh and text_of(f"{rel}/.installed") == release_id + "\n":
                status = os.stat(f"{rel}/.installed")
                self.system.put(f"{new}/own/.installed", release_id + "\n")
                os.utime(f"{new}/own/.installed", ns=(status.st_atime_ns, status.st_mtime_ns))
            self.system.rename(f"{new}/own", own)
        if fresh:
            self.system.remove(rel)
            self.system.rename(f"{new}/tree", rel)
        self.system.remove(new)

    def note(self, release_id: str) -> None:
        """Append a line to the history atomically."""
        new = f"{self.base}/history/.{self.name}.new"  # <name>.new may be another release's
        self.system.put(self.history, text_of(self.history) + release_id + "\n", new)

    def switch(self, release_id: str, run: str) -> None:
        """Make a staged release the live one, in one rename. Raises EndedError."""
        rel, own = f"{self.folder}/{release_id}", own_of(self.base, self.name, release_id)
        # Releases of an earlier fleet have their marks among the user's files.
        mark = ".installed" if own == rel else "manifest.json"
        if not os.path.isdir(rel) or not os.path.isfile(f"{own}/{mark}"):
            raise EndedError(78, f"failed switch release {release_id} is not there")
        # A switch may have been killed before its line; prune could not tell what is live.
        now = self.now
        last = text_of(self.history).splitlines()[-1:]
        if now and last != [now]:
            self.note(now)
        if own != rel:
            self.system.put(f"{own}/.installed", release_id + "\n")
        if own != rel and self.system.posix:
            try:
                self.system.put(f"{own}/.seal", stamp(rel, own))
            except OSError:
                self.system.remove(f"{own}/.seal")
        self.write_login()
        self.system.flush(rel)
        self.system.point(self.base, self.name, release_id, run)
        if self.now != release_id:
            why = f"current/{self.name} does not lead to {release_id}"
            raise EndedError(74, f"failed switch {why}")
        self.system.flush(f"{self.base}/current")
        if release_id != now:
            self.note(release_id)
        say("switched")

    def write_login(self) -> None:
        """Write the environment for people who log in, at a path that stays the same."""
        name, text = self.system.login(self.base, self.name)
        path = f"{self.base}/env/{name}"
        if text_of(path) != text:
            os.makedirs(f"{self.base}/env", exist_ok=True)
            if os.path.isdir(path):
                self.system.remove(path)
            self.system.put(path, text, f"{self.base}/env/.{self.name}.new")

    def prune(self, keep: int) -> None:
        """Remove releases beyond the newest, and blobs that no release links to."""
        now = self.now
        whole = os.path.isfile(f"{own_of(self.base, self.name, now)}/manifest.json")
        if not now or not whole or not os.path.isdir(f"{self.folder}/{now}"):
            say("unpruned cannot tell which release is current; nothing was removed")
            return
        stay = [now]
        for past in reversed(text_of(self.history).splitlines()):
            there = past and set(past) <= HEX and os.path.isdir(f"{self.folder}/{past}")
            if there and past not in stay and len(stay) < max(keep, 2):
                stay.append(past)
        stay.append(target(f"{self.base}/serve/{self.name}/release"))
        busy = []
        for rel in sorted(os.listdir(self.folder)):
            ours = rel.startswith((".stage-", ".gone-")) or not rel.startswith(".")
            if rel not in stay and ours and not self.system.discard(f"{self.folder}/{rel}"):
                busy.append(rel)
        for own in os.listdir(self.own) if os.path.isdir(self.own) else ():
            if not os.path.isdir(f"{self.folder}/{own}"):
                self.system.remove(f"{self.own}/{own}")
        self.system.remove(f"{self.store}/.batch.part")
        blobs = []
        for name in os.listdir(self.store):
            kept = name.endswith(".part") and not name.startswith("late-")
            if not kept and os.path.isfile(f"{self.store}/{name}"):
                blobs.append(name)
        self.system.drop(self.store, self.system.unused(self.base, blobs))
        say(f"unpruned in use, left for the next time: {' '.join(busy)}" if busy else "pruned")


def files_in(folder: str) -> "set[str]":
    """Return the names of the regular files in a folder, without a stat of each."""
    if not os.path.isdir(folder):
        return set()
    with os.scandir(folder) as entries:
        return {entry.name for entry in entries if entry.is_file(follow_symlinks=False)}
