"""The owner name written into leases, and a lock file that shows if the owning process is alive.

A killed process cannot release its lease. The kernel releases its file lock, so that the same user
notices at once and need not wait for the end of the lease. If the file is not visible (another
workstation, container or TMPDIR), the holder counts as alive.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import secrets
import socket
import stat
import tempfile
from pathlib import Path


def owner() -> str:
    """Return `user@workstation` or $FLEET_OWNER, the name for other users of a board."""
    if named := os.environ.get("FLEET_OWNER"):
        return named
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _folder() -> Path | None:
    """Return this user's private folder for temporary files, None if it cannot be trusted."""
    folder = Path(tempfile.gettempdir()) / f"fleet-leases-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        about = folder.lstat()
    except OSError:
        return None
    ours = about.st_uid == os.getuid() and not about.st_mode & 0o077
    return folder if ours and stat.S_ISDIR(about.st_mode) else None


class OwnerToken:
    """A random token, and a file of that name that is locked as long as this process lives."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
        self._path: Path | None = None
        self._file: int | None = None
        folder = _folder()
        if folder is not None:
            with contextlib.suppress(OSError):
                self._file = os.open(folder / self.token, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._path = folder / self.token

    def close(self, *, given_back: bool) -> None:
        """Release the lock.

        Unless the lease was `given_back`, keep the file: it shows that the owner is gone.
        """
        if self._path is not None and given_back:
            self._path.unlink(missing_ok=True)
        if self._file is not None:
            os.close(self._file)
        self._path = self._file = None


def has_ended(token: str) -> bool:
    """Return True if the process that made `token` ran here, as this user, and has
    certainly ended.
    """
    folder = _folder()
    if folder is None or not token.isalnum():
        return False
    try:
        file = os.open(folder / token, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def forget(token: str) -> None:
    """Remove the file of a process that has ended and whose lease was taken over."""
    folder = _folder()
    if folder is not None and token.isalnum():
        (folder / token).unlink(missing_ok=True)
