"""A terminal on one device: a program of this workstation over the way that fleet found."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import tempfile
from pathlib import Path

from fleet.engine.leasing import Lease
from fleet.engine.session import Session
from fleet.model.events import Listener
from fleet.model.inventory import Host
from fleet.ops.lease import holders_in, who_command


def open_terminal(
    host: Host, listener: Listener, *, lease: bool = False, accept_new: bool = False
) -> int:
    """Its exit status, 128+N for a signal. Who holds the board is told as a warning; with
    `lease` nobody else writes meanwhile. Raises what Session.open raises, and LeaseHeldError.
    """
    session = Session(host, listener, accept_new=accept_new)
    with contextlib.closing(session), tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        session.open()
        argv = session.transport.terminal(Path(folder))
        if lease:
            with Lease(session, "shell") as held:
                held.take()
                return _attended(argv)
        if session.transport.system == "posix":
            said = session.ask(who_command(), "lease").text
            for note in holders_in(said, host.name).notes():
                session.warn(note)
        session.close()
        return _attended(argv)


def _attended(argv: list[str]) -> int:
    """Run to the end; Ctrl-C is for the program, not for us."""
    with subprocess.Popen(argv) as child:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            status = child.wait()
        finally:
            signal.signal(signal.SIGINT, before)
    return status if status >= 0 else 128 - status
