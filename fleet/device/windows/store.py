"""Blobs and releases on a Windows device: state, receive, stage, switch, prune, status.

A release is a folder of hard links into the store, so that skel and catalog lie in one folder and
no file is there twice. `current/<name>` is a small file with the id of the live release, replaced
in one rename (MoveFileEx): who reads it finds the old id or the new one. Releases are started by
their id, so nothing runs through it. Answers are those of device/sh/store/*.sh. Runs on POSIX too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator

from fleet.device.windows.basics import is_file, patiently, put, say

PIECE = 1 << 18


def err(text: str, status: int) -> int:
    """Words on standard error; the status."""
    sys.stderr.write(text + "\n")
    return status


def reason(error: OSError) -> str:
    """The C library's words: those of Windows are in the language of the device."""
    return os.strerror(error.errno) if error.errno else str(error)


def lines() -> Iterator[str]:
    """Standard input line by line; what follows a line can still be read."""
    while True:
        line = sys.stdin.buffer.readline()
        if not line:
            return
        yield line.rstrip(b"\n").decode("utf-8")


def digest(path: str) -> str:
    """SHA-256 of a file."""
    found = hashlib.sha256()
    with open(path, "rb", buffering=0) as stream:
        while True:
            piece = stream.read(PIECE)
            if not piece:
                return found.hexdigest()
            found.update(piece)


def text_of(path: str) -> str:
    """A small file; "" without it."""
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except OSError:
        return ""


def current(base: str, name: str) -> str:
    """Id of the live release, "" without one."""
    return text_of(f"{base}/current/{name}").strip()


def same(one: str, other: str) -> bool:
    """Two names of one file."""
    try:
        return os.path.samefile(one, other) and not os.path.islink(one)
    except OSError:
        return False


def state(base: str, name: str, release: str, verify: str, *_: str) -> int:
    """See state.sh; `sealed` is never said."""
    rel = f"{base}/releases/{name}/{release}"
    say("fleet-state 1")
    now = current(base, name)
    if now:
        say("current", now)
    if is_file(rel + "/.installed"):
        say("installed")
    for past in text_of(f"{base}/history/{name}").split():
        say("history", past)
    done = set()
    for line in lines():
        sha, size, file = line.split("\t", 2)
        blob = f"{base}/store/{sha}"
        if os.path.isdir(rel) and not same(rel + "/" + file, blob):
            say("unlinked", sha)
        if sha in done:
            continue
        done.add(sha)
        if not is_file(blob):
            if is_file(blob + ".part"):
                say("part", sha, os.path.getsize(blob + ".part"))
        elif os.path.getsize(blob) != int(size):
            say("bad", sha)
        else:
            say("have", sha)
            doubtful = verify == "hash" or newer(blob, rel + "/.installed")
            if doubtful and digest(blob) != sha:
                say("bad", sha)
    say("end")
    return 0


def newer(blob: str, seal: str) -> bool:
    """The blob was written to after its release was switched to."""
    try:
        return os.stat(blob).st_mtime_ns > os.stat(seal).st_mtime_ns
    except OSError:
        return False


class Taking:
    """Blobs from standard input into the store."""

    def __init__(self, base: str) -> None:
        self.store = base + "/store"
        self.bad = False

    def one(self, head: str) -> int:
        """One blob behind its line; a status that is not 0 ends the stream."""
        sha, size, offset, mode, blocks, rest, coding, end = head.split(" ")
        part = f"{self.store}/{sha}.part"
        if coding not in ("raw", "hand"):
            return self.failed(sha, f"coding {coding} is not known here")
        if not is_file(part) and os.path.lexists(part):
            patiently(shutil.rmtree if os.path.isdir(part) else os.unlink, part)
        have = os.path.getsize(part) if is_file(part) else 0
        if str(have) != offset:
            if offset != "0":
                say("moved", sha, have)
                return 75
            os.unlink(part)
        have, got = self.write(part, (int(blocks) << 20) + int(rest))
        if have != int(end):
            say("short", sha, have)
            return 76
        if end != size:
            say("kept", sha)
            return 0
        if got != sha:
            say("bad", sha, got)
            patiently(os.unlink, part)
            self.bad = True
            return 0
        if os.name != "nt":  # there every file can be started, and read-only ones never removed
            os.chmod(part, int(mode, 8))
        patiently(os.replace, part, f"{self.store}/{sha}")
        say("ok", sha)
        return 0

    def write(self, part: str, left: int) -> tuple[int, str]:
        """Append so many bytes; size and SHA-256 of the whole file, which is on the disk then."""
        found = hashlib.sha256()
        with open(part, "ab+") as out:
            out.seek(0)
            while True:
                piece = out.read(PIECE)
                if not piece:
                    break
                found.update(piece)
            while left:
                piece = sys.stdin.buffer.read(min(left, PIECE))
                if not piece:
                    break
                out.write(piece)
                found.update(piece)
                left -= len(piece)
            out.flush()
            os.fsync(out.fileno())
            return out.tell(), found.hexdigest()

    def failed(self, sha: str, why: str) -> int:
        """Said as the host expects it."""
        say("failed", sha, why)
        return 74


def receive(base: str, *_: str) -> int:
    """See receive.sh; of the codings only raw."""
    taking, sha = Taking(base), "-"
    try:
        os.makedirs(taking.store, exist_ok=True)
        for head in lines():
            sha = head.partition(" ")[0]
            status = taking.one(head)
            if status:
                return status
    except OSError as error:
        return taking.failed(sha, reason(error))
    return 77 if taking.bad else 0


def stage(base: str, name: str, release: str, run: str) -> int:
    """See stage.sh; hard links, and env.ps1 instead of env.sh."""
    rel = f"{base}/releases/{name}/{release}"
    new = rel if os.path.isdir(rel) else f"{base}/releases/{name}/.stage-{run}"
    if new != rel:
        shutil.rmtree(new, ignore_errors=True)
    for folder in (new, base + "/current", base + "/history"):
        os.makedirs(folder, exist_ok=True)
    env = []
    for line in lines():
        kind, _, rest = line.partition("\t")
        if kind == "d":
            os.makedirs(new + "/" + rest, exist_ok=True)
        elif kind == "f":
            sha, _, file = rest.partition("\t")
            status = link(f"{base}/store/{sha}", new + "/" + file)
            if status:
                return status
        elif kind == "e":
            env.append(rest)
        elif kind == "m":
            record = sys.stdin.buffer.read().decode("utf-8")
            keep(new + "/env.ps1", "".join(one + "\n" for one in env))
            keep(new + "/manifest.json", record)
    if new != rel:
        patiently(os.rename, new, rel)
    say("staged")
    return 0


def keep(path: str, text: str, hidden: str = "") -> None:
    """A file of ours. Where releases have names of their own, what is not whole yet is hidden."""
    folder, _, name = path.rpartition("/")
    put(path, text, f"{folder}/{hidden}{name}.new")


def link(blob: str, there: str) -> int:
    """One file of a release; 0, or the status."""
    if not is_file(blob):
        return err(f"blob {os.path.basename(blob)} of {there} is gone", 78)
    if same(there, blob):
        return 0
    if os.path.lexists(there):
        patiently(os.unlink, there)
    try:
        os.link(blob, there)
    except OSError as error:
        return err(f"no hard link for {there} (NTFS has them): {reason(error)}", 74)
    return 0


def switch(base: str, name: str, release: str, _: str) -> int:
    """See switch.sh: `.installed`, the pointer, the history."""
    rel = f"{base}/releases/{name}/{release}"
    past = f"{base}/history/{name}"
    if not is_file(rel + "/manifest.json"):
        return err(f"release {release} is not there", 78)
    now = current(base, name)
    history = text_of(past).split()
    if now and history[-1:] != [now]:
        history.append(now)
        keep(past, "\n".join(history) + "\n", ".")
    keep(rel + "/.installed", release + "\n")
    keep(f"{base}/current/{name}", release + "\n", ".")
    if current(base, name) != release:
        return err(f"current/{name} does not say {release}", 74)
    if release != now:
        keep(past, "\n".join([*history, release]) + "\n", ".")
    say("switched")
    return 0


def switch_and_prune(base: str, name: str, release: str, run: str, keep: str) -> int:
    """Both; what fails after `switched` is the pruning."""
    return switch(base, name, release, run) or prune(base, name, keep)


def prune(base: str, name: str, keep: str) -> int:
    """See prune.sh. A release that runs is left: Windows removes no library that is loaded."""
    now = current(base, name)
    here = f"{base}/releases/{name}"
    if not now or not is_file(f"{here}/{now}/manifest.json"):
        return err("cannot tell which release is current; nothing was removed", 74)
    stay = [now]
    for past in reversed(text_of(f"{base}/history/{name}").split()):
        known = past not in stay and past.isalnum() and os.path.isdir(here + "/" + past)
        if known and len(stay) < max(2, int(keep)):
            stay.append(past)
    busy = []
    for one in sorted(os.listdir(here)):
        if one in stay:
            continue
        gone = f"{here}/.gone-{one}"
        try:  # a folder with an open file cannot be renamed: then nothing of it goes
            if not one.startswith(".gone-"):
                os.rename(here + "/" + one, gone)
            shutil.rmtree(gone if not one.startswith(".gone-") else here + "/" + one)
            say("release", one)
        except OSError:
            busy.append(one)
    for sha in sorted(os.listdir(base + "/store")):
        blob = f"{base}/store/{sha}"
        # Each release that uses a blob is one more name of it.
        if not sha.endswith(".part") and is_file(blob) and os.stat(blob).st_nlink == 1:
            with contextlib.suppress(OSError):
                os.unlink(blob)
                say("blob", sha)
    say("pruned")
    return err("in use, left for the next time: {}".format(" ".join(busy)), 74) if busy else 0


def status(base: str) -> int:
    """See status.sh."""
    say("fleet-status 1")
    names = sorted(os.listdir(base + "/current")) if os.path.isdir(base + "/current") else []
    for name in names:
        if name.startswith("."):
            continue
        release = current(base, name)
        rel = f"{base}/releases/{name}/{release}"
        record = text_of(rel + "/manifest.json")
        whole = bool(release) and bool(record) and is_file(rel + "/.installed")
        broken = 0
        with contextlib.suppress(ValueError, KeyError, TypeError):
            for one in json.loads(record or "{}").get("files", []):
                blob = "{}/store/{}".format(base, one["sha256"])
                broken += not same(rel + "/" + one["name"], blob)
        say(
            "name", name, release or "-", "installed" if whole and not broken else "damaged", broken
        )
        for past in text_of(f"{base}/history/{name}").split():
            say("history", name, past)
        if record:
            say("manifest", name, " ".join(record.split("\n")))
    say("end")
    return 0
