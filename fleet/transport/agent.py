"""An ssh-agent of our own that holds one board's key for the way from one neighbour.

OpenSSH 8.9 binds a key in an agent to a path: from board A to board B as one user. What A may
do with the forwarded agent is then to log in there, and nowhere else.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from fleet.model.deadline import Deadline
from fleet.model.errors import UnreachableError
from fleet.transport.process import end

NEEDED = (8, 9)  # OpenSSH that can bind keys of an agent: openssh.com/agent-restrict.html
_VERSION = re.compile(r"OpenSSH(?:_for_Windows)?_(\d+)\.(\d+)")
_USER = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]*")  # ssh-add reads ?, *, @ and > as more
_LOOK_SECONDS = 0.005
_END_SECONDS = 5.0
_WITHOUT = "deploy without relay: remove `relay` from `tune:` or --tune"
# cat ends when its input does: on close(), and whenever and however this process ends.
_KEEPER = (
    'ssh-agent -D -a "$1/agent" > /dev/null 2>&1 &\n'
    'cat > /dev/null\nkill "$!"\nwait "$!"\nrm -rf -- "$1"'
)


def can_bind(version: str) -> bool:
    """True for the banner or `ssh -V` of an OpenSSH that binds keys."""
    found = _VERSION.search(version)
    return found is not None and (int(found[1]), int(found[2])) >= NEEDED


@cache
def lacking() -> str:
    """Why this machine cannot hand on a key bound to a path; "" when it can."""
    for program in ("ssh", "ssh-agent", "ssh-add"):
        if shutil.which(program) is None:
            return f"the program {program} is missing on this workstation"
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        said = subprocess.run(["ssh", "-V"], capture_output=True, timeout=10, check=False)
        version = said.stderr.decode("utf-8", "replace").strip()
        if can_bind(version):
            return ""
        return f"{version or 'the ssh client'} cannot restrict a key to one destination"
    return "the ssh client of this workstation does not answer"


class Agent:
    """A process of ours with a socket in a folder of mode 0700; it ends with this process."""

    def __init__(self, deadline: Deadline) -> None:
        """Raises UnreachableError when it does not start."""
        self._folder = Path(tempfile.mkdtemp(prefix="fleet-"))
        self.socket = self._folder / "agent"
        self._keeper = subprocess.Popen(
            ["sh", "-c", _KEEPER, "fleet", str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        while not self.socket.exists():
            if self._keeper.poll() is not None or deadline.expired:
                self.close()
                raise UnreachableError("the program ssh-agent does not start")
            time.sleep(_LOOK_SECONDS)

    def add(
        self, keys: Sequence[str], source: str, target: str, user: str, deadline: Deadline
    ) -> None:
        """Hold these key files, for the way from `source` to `target` as `user` only.

        `source` and `target` are lines of known_hosts without names. Raises UnreachableError
        when none of the keys can be held so, with the words of ssh-add.
        """
        if not _USER.fullmatch(user):
            raise UnreachableError(
                f"ssh-agent cannot restrict a key to the user name {user!r}", hint=_WITHOUT
            )
        known = self._folder / "known"
        known.write_text(f"fleet-source {source}\nfleet-target {target}\n", "utf-8")
        said = ""
        held = 0
        for key in keys:
            done = subprocess.run(
                # The first hop must be permitted too; as a user that no board has.
                [
                    *("ssh-add", "-q", "-t", str(max(1, int(deadline.seconds)))),
                    *("-H", str(known), "-h", "fleet-relay-only@fleet-source"),
                    *("-h", f"fleet-source>{user}@fleet-target", "--", key),
                ],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=max(1.0, deadline.remaining),
                check=False,
                env={"PATH": _path(), "SSH_AUTH_SOCK": str(self.socket)},
                start_new_session=True,  # no terminal: nobody is asked for a passphrase
            )
            held += not done.returncode
            said = done.stderr.decode("utf-8", "replace").strip() or said
        if not held:
            raise not_lent(said.splitlines()[-1][-200:] if said else "no key file")

    def close(self) -> None:
        """End it and remove its folder; never raises."""
        if self._keeper.stdin is not None:
            with contextlib.suppress(OSError):
                self._keeper.stdin.close()
        try:
            self._keeper.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            end(self._keeper)
        shutil.rmtree(self._folder, ignore_errors=True)


def not_lent(why: object) -> UnreachableError:
    """The error for a key that ssh-add does not take."""
    return UnreachableError(
        f"ssh-add cannot load the key that lets one board log in to the next: {why}",
        hint=_WITHOUT,
    )


def _path() -> str:
    return str(Path(shutil.which("ssh-add") or "/usr/bin/ssh-add").parent)
