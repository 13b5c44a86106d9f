"""Whether a release is as it was at the switch; alone, because it is asked most often.

argv: `<base> <name> <id>`; the answer is the beginning of that of state.sh, and `sealed`. Only
what every Python has loaded at its start is imported: a small core takes 10 ms for the rest.
"""

import os
import sys

OWN = (".installed", "env.sh", "manifest.json")  # what is stamped of fleet's own


def say(*lines: str) -> None:
    """Lines for the workstation, at once."""
    out = sys.stdout.buffer
    out.write("".join(line + "\n" for line in lines).encode("utf-8", "surrogateescape"))
    out.flush()


def link_of(path: str) -> str:
    """Where a link leads, "" when it is none."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def target(path: str) -> str:
    """The last part of where a link leads, "" when it is none."""
    return link_of(path).rsplit("/", 1)[-1]


def text_of(path: str) -> str:
    """A small file, "" when it is not there."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            return stream.read()
    except OSError:
        return ""


def own_of(base: str, name: str, release_id: str) -> str:
    """The folder of fleet's own files of a release; the release's where an earlier fleet made it,
    which had them among those of the user.
    """
    own, release = (f"{base}/{room}/{name}/{release_id}" for room in ("meta", "releases"))
    return own if os.path.isdir(own) or not os.path.isdir(release) else release


def stamp(release: str, own: str) -> str:
    """Inode, size, times and name of every file: who finds them so later need not look closer.

    As GNU find prints `%i %s %T@ %C@ %p`, sorted: stamp.sh compares so.
    """
    lines = [line(os.stat(f"{own}/{name}"), f"{own}/{name}") for name in OWN]
    folders = [release]
    while folders:
        folder = folders.pop()
        place = os.open(folder, os.O_RDONLY)
        for name in os.listdir(place):
            seen = os.stat(name, dir_fd=place)
            if seen.st_mode & 0o170000 == 0o040000:
                folders.append(f"{folder}/{name}")
            else:
                lines.append(line(seen, f"{folder}/{name}"))
        os.close(place)
    return "".join(sorted(lines, key=os.fsencode))


def line(seen: os.stat_result, path: str) -> str:
    """Of one file."""
    times = f"{time(seen.st_mtime_ns)} {time(seen.st_ctime_ns)}"
    return f"{seen.st_ino} {seen.st_size} {times} {path}\n"


def time(nanoseconds: int) -> str:
    """Seconds with ten digits of them, as find has them."""
    return f"{nanoseconds // 10**9}.{nanoseconds % 10**9:09}0"


def stamped(release: str, own: str) -> bool:
    """True when all is as it was at the switch."""
    try:
        kept = text_of(f"{own}/.seal")
        return bool(kept) and kept == stamp(release, own)
    except OSError:
        return False


def beginning(base: str, name: str, release_id: str, now: str) -> "list[str]":
    """What is live (`now`), whether the release is installed, and the history."""
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
    """Whether the release is live and stamped, by the `beginning`."""
    live = f"current {release_id}" in lines[1:2] and "installed" in lines[2:3]
    release = f"{base}/releases/{name}/{release_id}"
    return live and stamped(release, f"{base}/meta/{name}/{release_id}")


def main(base: str, name: str, release_id: str) -> int:
    """The exit status."""
    lines = beginning(base, name, release_id, target(f"{base}/current/{name}"))
    say(*lines, *(["sealed"] if untouched(lines, base, name, release_id) else []), "end")
    return 0
