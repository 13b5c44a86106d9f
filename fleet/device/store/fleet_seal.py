"""Whether a release is as it was at the switch; alone, because it is asked most often.

argv: `<base> <name> <id>`; the answer is the beginning of that of state.sh, and `sealed`. Only
what every Python has loaded at its start is imported: a small core takes 10 ms for the rest.
"""

import os

SEALS = (".seal", ".seal.new")


def say(*lines: str) -> None:
    """Lines for the workstation, at once."""
    data = "".join(line + "\n" for line in lines).encode("utf-8", "surrogateescape")
    while data:
        data = data[os.write(1, data) :]


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


def seal(release: str) -> str:
    """Inode, size, times and name of every file: who finds them so later need not look closer.

    As GNU find prints `%i %s %T@ %C@ %p`, sorted: seal.sh compares so.
    """
    lines = []
    folders = [release]
    while folders:
        folder = folders.pop()
        place = os.open(folder, os.O_RDONLY)
        for one in os.listdir(place):
            if one in SEALS:
                continue
            found = os.stat(one, dir_fd=place)
            if found.st_mode & 0o170000 == 0o040000:
                folders.append(f"{folder}/{one}")
            else:
                times = f"{time(found.st_mtime_ns)} {time(found.st_ctime_ns)}"
                lines.append(f"{found.st_ino} {found.st_size} {times} {folder}/{one}\n")
        os.close(place)
    return "".join(sorted(lines, key=os.fsencode))


def time(nanoseconds: int) -> str:
    """Seconds with ten digits of them, as find has them."""
    return f"{nanoseconds // 10**9}.{nanoseconds % 10**9:09}0"


def sealed(release: str) -> bool:
    """True when all is as it was at the switch."""
    try:
        said = text_of(f"{release}/.seal")
        return bool(said) and said == seal(release)
    except OSError:
        return False


def beginning(base: str, name: str, release_id: str) -> "list[str]":
    """What is live, whether the release is installed, and the history."""
    now = target(f"{base}/current/{name}")
    lines = ["fleet-state 1"]
    lines += [f"current {now}"] if now else []
    if os.path.isfile(f"{base}/releases/{name}/{release_id}/.installed"):
        lines.append("installed")
    lines += [f"history {one}" for one in text_of(f"{base}/history/{name}").splitlines()]
    return lines


def untouched(lines: "list[str]", base: str, name: str, release_id: str) -> bool:
    """Whether the release is live and sealed, by the `beginning`."""
    live = f"current {release_id}" in lines[1:2] and "installed" in lines[2:3]
    return live and sealed(f"{base}/releases/{name}/{release_id}")


def main(base: str, name: str, release_id: str) -> int:
    """The exit status."""
    lines = beginning(base, name, release_id)
    say(*lines, *(["sealed"] if untouched(lines, base, name, release_id) else []), "end")
    return 0
