"""The store on POSIX: symbolic links into it, and one link to the live release.

`current/<name>` is replaced in one rename(2). links_windows.py contains the differences.
"""

import os

from fleet.device.store.files import WRITE, put, remove
from fleet.device.store.recycle import HEX, give_way, keep
from fleet.device.store.stamp import link_of, target

TYPE_CHECKING = False  # the module typing takes 10 ms
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class PosixLinks:
    """The file system operations of the store."""

    env = "env.sh"
    posix = True  # stamps, recyclable blobs, patches
    put = staticmethod(put)  # a small file, atomically
    mode: "Callable[[str, int], None]" = staticmethod(os.chmod)
    rename: "Callable[[str, str], object]" = staticmethod(os.replace)
    remove = staticmethod(remove)  # any path, with everything in it
    room = staticmethod(give_way)  # of recyclable blobs, if there is not enough room
    drop = staticmethod(keep)  # blobs that nothing uses

    def login(self, base: str, name: str) -> "tuple[str, str]":
        """Return (file name, text) of the shell environment for people who log in."""
        quoted = base.replace("'", "'\\''")
        return f"{name}.sh", (
            f"# The environment of the live release of {name}, by fleet. "
            f"In a shell: . {base}/env/{name}.sh\n"
            f"QNN_SDK_ROOT=$(cd '{quoted}/current/{name}' && pwd -P) &&\n"
            f"  . '{quoted}/meta/{name}/'\"${{QNN_SDK_ROOT##*/}}\"/env.sh &&\n"
            '  export QNN_SDK_ROOT PATH="$QNN_SDK_ROOT/bin:$QNN_SDK_ROOT:$PATH"\n'
        )

    def live(self, base: str, name: str) -> str:
        """Return the id of the live release, "" if there is none."""
        return target(f"{base}/current/{name}")

    def point(self, base: str, name: str, release_id: str, run: str) -> None:
        """Make a release the live one, in one rename."""
        self.sweep(base, name)
        new = f"{base}/current/.{name}.{run}"
        replace(f"{base}/current/{name}", f"../releases/{name}/{release_id}", new)

    def sweep(self, base: str, name: str) -> None:
        """Remove the temporary links to releases of this name that killed switches left."""
        folder = f"{base}/current"
        for entry in os.listdir(folder):
            path, by_ln = f"{folder}/{entry}", entry[:-6] == f"{name}_"
            ours = link_of(path).startswith(f"../releases/{name}/")
            empty = not os.path.islink(path) and os.path.isfile(path) and not os.path.getsize(path)
            if (by_ln and (ours or empty)) or (entry.startswith(f".{name}.") and ours):
                os.unlink(path)

    def leads(self, path: str, blob: str) -> bool:
        """Return True if a file of a release is that blob."""
        return os.path.exists(path) and link_of(path) == blob

    def link(self, path: str, blob: str, new: str) -> None:
        """Make a file of a release that blob. `new` is its temporary name, "" in a new folder."""
        if not new:
            os.symlink(blob, path)
        elif link_of(path) != blob:
            replace(path, blob, new)

    def small(self, path: str, data: memoryview, mode: int) -> None:
        """Write a small new file; `flush` of its folder syncs it."""
        file = os.open(path, WRITE | os.O_EXCL, mode)
        try:
            while data:
                data = data[os.write(file, data) :]
        finally:
            os.close(file)

    def flush(self, path: str) -> None:
        """Sync the file system of a path. Only another program can sync one file system."""
        words = ["sync", "-f", path]
        try:
            if hasattr(os, "posix_spawnp"):  # avoids a fork of this process
                status = os.waitpid(os.posix_spawnp("sync", words, os.environ), 0)[1]
            else:
                status = os.spawnvp(os.P_WAIT, "sync", words)
        except OSError:
            status = 1
        if status:
            os.sync()

    def discard(self, release: str) -> bool:
        """Remove a release. Return False if it is in use."""
        remove(release)
        return True

    def unused(self, base: str, blobs: "Iterable[str]") -> "list[str]":
        """Return those of `blobs` to which no release links, and names that are no hash."""
        used: set[str] = set()
        for top, folders, names in os.walk(f"{base}/releases", onerror=fail):
            used.update(target(f"{top}/{name}") for name in (*folders, *names))
        return [blob for blob in blobs if blob not in used or not set(blob) <= HEX]


def replace(path: str, to: str, new: str) -> None:
    """Replace any path by a link, in one rename."""
    remove(new)
    os.symlink(to, new)
    if os.path.isdir(path) and not os.path.islink(path):
        remove(path)
    os.rename(new, path)


def fail(error: OSError) -> None:
    """Raise the error of a folder that cannot be read, because its use of blobs is unknown."""
    raise error
