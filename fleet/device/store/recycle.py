"""Recyclable blobs: large ones that no release needs, which become their successors.

They are `store/<sha256>.spare`. Only the differences of a new version are then written, and the
disk needs no room for a second copy. They are deleted first if the disk is full. Python 3.7 or
newer.
"""

import os

LEAST = 16 << 20  # a smaller file is cheap to write as a new file
SHARE = 4  # all of them together take at most a quarter of the free disk
MARGIN = 64 << 20
END = ".spare"
HEX = frozenset("0123456789abcdef")


def is_hash(name: str) -> bool:
    """Return True if a name is a SHA-256."""
    return len(name) == 64 and set(name) <= HEX


def free(store: str) -> int:
    """Return the bytes that this user can still write."""
    disk = os.statvfs(store)
    return disk.f_bavail * disk.f_frsize


def keep(store: str, loose: "list[str]") -> None:
    """Keep the large files that nothing uses, new ones first; delete the others.

    The choice among old ones does not depend on their age, because clocks jump.
    """
    large_files = []
    for name in loose:
        status = os.lstat(f"{store}/{name}")
        old = name.endswith(END)
        sha = name[: -len(END)] if old else name
        large = status.st_mode & 0o170000 == 0o100000 and status.st_size >= LEAST
        if large and is_hash(sha):
            large_files.append((old, sha, name, status.st_size))
        else:
            os.unlink(f"{store}/{name}")
    room = (free(store) + sum(entry[3] for entry in large_files if entry[0])) // SHARE
    for _, sha, name, size in sorted(large_files):
        if size > room:
            os.unlink(f"{store}/{name}")
            continue
        room -= size
        os.rename(f"{store}/{name}", f"{store}/{sha}{END}")


def give_way(store: str, need: int) -> None:
    """Delete recyclable blobs if the disk lacks room for this many bytes."""
    if free(store) < need + MARGIN:
        for sha in names(store):
            os.unlink(f"{store}/{sha}{END}")


def names(store: str) -> "list[str]":
    """Return the SHA-256 of each recyclable blob."""
    if not os.path.isdir(store):
        return []
    hashes = [name[: -len(END)] for name in os.listdir(store) if name.endswith(END)]
    return sorted(sha for sha in hashes if is_hash(sha))


def take(store: str, sha: str, path: str) -> "int | None":
    """Rename a recyclable blob to `path`; return None if it may be overwritten.

    If a process still reads it, leave it to that process, and return a descriptor for its bytes.
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
    """Return True if no other process has the file open or mapped.

    The kernel grants a write lease only then (fcntl(2)). Return False if it grants none at all, as
    on network file systems.
    """
    try:
        import fcntl

        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except (ImportError, AttributeError, OSError):
        return False
    return True
