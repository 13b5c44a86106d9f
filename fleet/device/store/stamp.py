"""Checks whether a release is as it was at the switch; a separate program, as it runs most often.

argv: `<base> <name> <id>`. The answer is the beginning of that of state.sh, and `sealed`. Only
modules that every Python loads at its start are imported: a small core needs 10 ms for others.
"""

import os
import sys

OWN = (".installed", "env.sh", "manifest.json")  # stamped files of fleet's own


def say(*lines: str) -> None:
    """Print lines for the workstation at once."""
    out = sys.stdout.buffer
    out.write("".join(line + "\n" for line in lines).encode("utf-8", "surrogateescape"))
    out.flush()


def link_of(path: str) -> str:
    """Return the target of a link, "" if it is no link."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def target(path: str) -> str:
    """Return the last part of a link's target, "" if it is no link."""
    return link_of(path).rsplit("/", 1)[-1]


def text_of(path: str) -> str:
    """Return the text of a small file, "" if it is missing."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            return stream.read()
    except OSError:
        return ""


def own_of(base: str, name: str, release_id: str) -> str:
    """Return the folder of fleet's own files of a release.

    It is the release itself if an earlier fleet made it, which kept them among the user's files.
    """
    own, release = (f"{base}/{room}/{name}/{release_id}" for room in ("meta", "releases"))
    return own if os.path.isdir(own) or not os.path.isdir(release) else release


def stamp(release: str, own: str) -> str:
    """Return inode, size, times and name of every file, which a later check compares.

    Format: GNU find `%i %s %T@ %C@ %p`, sorted, since stamp.sh compares with it.
    """
    lines = [line(os.stat(f"{own}/{name}"), f"{own}/{name}") for name in OWN]
    folders = [release]
    while folders:
        folder = folders.pop()
        place = os.open(folder, os.O_RDONLY)
        for name in os.listdir(place):
            status = os.stat(name, dir_fd=place)
            if status.st_mode & 0o170000 == 0o040000:
                folders.append(f"{folder}/{name}")
            else:
                lines.append(line(status, f"{folder}/{name}"))
        os.close(place)
    return "".join(sorted(lines, key=os.fsencode))


def line(status: os.stat_result, path: str) -> str:
    """Return inode, size, times and path of a file as a line."""
    times = f"{time(status.st_mtime_ns)} {time(status.st_ctime_ns)}"
    return f"{status.st_ino} {status.st_size} {times} {path}\n"


def time(nanoseconds: int) -> str:
    """Return seconds with ten decimals, as find prints them."""
    return f"{nanoseconds // 10**9}.{nanoseconds % 10**9:09}0"


def stamped(release: str, own: str) -> bool:
    """Return True if the release is as it was at the switch."""
    try:
        kept = text_of(f"{own}/.seal")
        return bool(kept) and kept == stamp(release, own)
    except OSError:
        return False


def beginning(base: str, name: str, release_id: str, now: str) -> "list[str]":
    """Return the live release (`now`), whether the release is installed, and the history."""
    lines = ["fleet-state 1"]
    lines += [f"current {now}"] if now else []
    release, own = f"{base}/releases/{name}/{release_id}", own_of(base, name, release_id)
    there = os.path.isdir(release) and not os.path.islink(release)
    if there and os.path.isfile(f"{own}/.installed"):
        lines.append("installed")
    if own == release:
        lines.append("old")
    lines += [f"history {past}" for past in text_of(f"{base}/history/{name}").splitlines()]
    return lines


def untouched(lines: "list[str]", base: str, name: str, release_id: str) -> bool:
    """Return True if the release is live and stamped, given the `beginning`."""
    live = f"current {release_id}" in lines[1:2] and "installed" in lines[2:3]
    release = f"{base}/releases/{name}/{release_id}"
    return live and stamped(release, f"{base}/meta/{name}/{release_id}")


def main(base: str, name: str, release_id: str) -> int:
    """Print the answer and return the exit status."""
    lines = beginning(base, name, release_id, target(f"{base}/current/{name}"))
    say(*lines, *(["sealed"] if untouched(lines, base, name, release_id) else []), "end")
    return 0
