"""Recyclable blobs: large ones that no release needs any more, made over into their successors.

`store/<sha256>.spare`. Of a new version only what differs is written then, and no disk has to find
room for gigabytes; they are the first to go where it does. Python 3.7 or newer.
"""

import os

LEAST = 16 << 20  # below, a new file is as cheap
SHARE = 4  # all of them together take a quarter of the free disk at most
MARGIN = 64 << 20
END = ".spare"
HEX = frozenset("0123456789abcdef")


def is_hash(name: str) -> bool:
    """Whether a name is a SHA-256."""
    return len(name) == 64 and set(name) <= HEX


def free(store: str) -> int:
    """Bytes that this user can still write there."""
    disk = os.statvfs(store)
    return disk.f_bavail * disk.f_frsize


def keep(store: str, loose: "list[str]") -> None:
    """Of files that nothing uses, the large ones stay, new ones first; others go.

    Which of the old ones go where the disk lacks room is no matter of age: clocks jump.
    """
    found = []
    for name in loose:
        seen = os.lstat(f"{store}/{name}")
        old = name.endswith(END)
        sha = name[: -len(END)] if old else name
        large = seen.st_mode & 0o170000 == 0o100000 and seen.st_size >= LEAST
        if large and is_hash(sha):
            found.append((old, sha, name, seen.st_size))
        else:
            os.unlink(f"{store}/{name}")
    room = (free(store) + sum(entry[3] for entry in found if entry[0])) // SHARE
    for _, sha, name, size in sorted(found):
        if size > room:
            os.unlink(f"{store}/{name}")
            continue
        room -= size
        os.rename(f"{store}/{name}", f"{store}/{sha}{END}")


def give_way(store: str, need: int) -> None:
    """They go where the disk lacks room for so many bytes."""
    if free(store) < need + MARGIN:
        for sha in names(store):
            os.unlink(f"{store}/{sha}{END}")


def names(store: str) -> "list[str]":
    """SHA-256 of each."""
    if not os.path.isdir(store):
        return []
    found = [name[: -len(END)] for name in os.listdir(store) if name.endswith(END)]
    return sorted(sha for sha in found if is_hash(sha))


def take(store: str, sha: str, path: str) -> "int | None":
    """Let one be `path`. None when it may be written; where somebody still reads it, it is
    left to them, and opened for its bytes.
    """
    spare = f"{store}/{sha}{END}"
    if os.path.islink(spare) or not os.path.isfile(spare):
        return os.open(os.devnull, os.O_RDONLY)
    os.rename(spare, path)
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    if os.fstat(file).st_nlink == 1 and alone(file):
        os.close(file)
        os.chmod(path, 0o644)
        return None
    os.unlink(path)
    give_way(store, os.fstat(file).st_size)
    return file


def alone(file: int) -> bool:
    """Whether no other process has the file open or mapped: the kernel gives a write lease only
    then (fcntl(2)). False where it gives none at all, as on network file systems.
    """
    try:
        import fcntl

        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except (ImportError, AttributeError, OSError):
        return False
    return True
