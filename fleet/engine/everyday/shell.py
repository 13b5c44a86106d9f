"""A terminal on one device: a program of this workstation over the connection that fleet chose."""

from __future__ import annotations

import contextlib
import shlex
import signal
import subprocess
import tempfile
from pathlib import Path

from fleet.engine.lease.lease import Lease
from fleet.engine.session import Session
from fleet.engine.states import facts_of
from fleet.model.command import script
from fleet.model.errors import InputError
from fleet.model.events import Listener
from fleet.model.inventory import Host
from fleet.model.manifest import is_name
from fleet.ops.lease import holders_in, who_command


def open_terminal(
    host: Host,
    listener: Listener,
    *,
    lease: bool = False,
    accept_new: bool = False,
    environment: str | None = None,
) -> int:
    """Open a terminal and return its exit status, 128+N for a signal.

    The holder of the board is shown as a warning. With `lease` nobody else writes meanwhile.
    `accept_new` pins new host keys. `environment` is the live release whose environment the shell
    gets, "" for the only release. Raises the errors of Session.open, LeaseHeldError, and InputError
    for an unknown release.
    """
    session = Session(host, listener, accept_new=accept_new)
    with contextlib.closing(session), tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        session.open()
        command = "" if environment is None else _with_environment(session, environment)
        argv = session.transport.terminal(Path(folder), command)
        if lease:
            with Lease(session, "shell") as held:
                held.take()
                return _attended(argv)
        if session.transport.system == "posix":
            answer = session.ask(who_command(), "lease").text
            for note in holders_in(answer, host.name).notes:
                session.warn(note)
        session.close()
        return _attended(argv)


def _with_environment(session: Session, name: str) -> str:
    """Return the command of a shell with the environment of a live release.

    Raises InputError on Windows, for an unknown `name`, and for "" if there are several releases.
    """
    host = session.host.name
    if session.transport.system != "posix":
        raise InputError(
            f"fleet cannot set the environment of a shell on {host}, which runs Windows",
            hint=f"fleet shell {host} (then type there: . fleet/env/NAME.ps1)",
        )
    base = facts_of(session, short=True).base_dir
    listing = session.ask(script('ls "$1/env" 2>/dev/null; true', base), "environments").text
    files = [line.removesuffix(".sh") for line in listing.split("\n") if line.endswith(".sh")]
    names = sorted(name for name in files if is_name(name))
    if name not in names and (name or len(names) != 1):
        known = ", ".join(names)
        raise InputError(
            f"{host} has no release {name}" if name
            else f"{host} has several releases: {known}" if names
            else f"{host} has no release whose environment a shell could get",
            hint=f"fleet shell {host} --env --release {names[0]}" if names
            else "fleet deploy (puts a release there)",
        )  # fmt: skip
    path = shlex.quote(f"{base}/env/{name or names[0]}.sh")
    return shlex.join(("sh", "-c", f'. {path} && exec "${{SHELL:-sh}}"'))


def _attended(argv: list[str]) -> int:
    """Run a program to its end. Ctrl-C goes to the program, not to fleet."""
    with subprocess.Popen(argv) as child:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            status = child.wait()
        finally:
            signal.signal(signal.SIGINT, before)
    return status if status >= 0 else 128 - status
