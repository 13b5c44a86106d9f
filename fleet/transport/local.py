"""This machine as a device: the same commands and the same quoting, without a network."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from fleet.model.command import Command, Result
from fleet.model.deadline import Deadline
from fleet.model.errors import DeviceError, UnreachableError, reason
from fleet.transport.base import Identity, PortStream, Streams, Traffic, Transport
from fleet.transport.process import Processes
from fleet.transport.quote import render


class LocalTransport(Transport):
    """A transport that runs commands with the shell of this machine."""

    name = "local"
    second = ""
    system = "posix"

    def __init__(self, _host: object = None, **_how: bool) -> None:
        self.traffic = Traffic()
        self._processes = Processes(self.traffic)
        self._open = False

    @property
    def describe(self) -> str:
        """Always `local`."""
        return "local"

    def open(self, deadline: Deadline) -> None:
        """Check the deadline. There is nothing to connect."""
        deadline.check("opening the local transport")
        self._open = True

    def close(self) -> None:
        """Kill the processes that still run."""
        self._open = False
        self._processes.end_all()

    def identity(self, deadline: Deadline) -> Identity:
        """Return the name of this machine."""
        deadline.check("asking for the identity")
        return Identity("local", socket.gethostname())

    def terminal(self, folder: Path, command: str = "") -> list[str]:  # noqa: ARG002 - interface
        """Return the argv of the user's shell, or of sh with the command."""
        return ["sh", "-c", command] if command else [os.environ.get("SHELL") or "sh"]

    def dial(self, port: int, deadline: Deadline) -> PortStream:
        """Connect to a port of 127.0.0.1. Raises DeviceError if nothing listens there."""
        try:
            made = socket.create_connection(("127.0.0.1", port), max(deadline.remaining, 0.01))
        except OSError as error:
            raise DeviceError(
                f"no program answers at port {port} of this workstation: {reason(error)}",
                hint="fleet serve start; or, if the service was started: fleet serve logs",
            ) from error
        made.settimeout(None)
        return made

    def run(self, command: Command, deadline: Deadline, **streams: Unpack[Streams]) -> Result:
        """Run a command in sh, as Transport.run does. Raises UnreachableError if not open."""
        if not self._open:
            raise UnreachableError(
                "the connection to this workstation (transport: local) is not open",
                hint="run the command again",
            )
        argv = ["sh", "-c", render(command)]
        done = self._processes.run(argv, command.argv[0], deadline, **streams)
        return done if done.status >= 0 else replace(done, status=128 - done.status)
