"""Root rights on a device, for listed commands only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fleet.engine.session import Session
from fleet.model.command import Command, Result
from fleet.model.errors import BecomeError, DeviceError
from fleet.model.masking import masked
from fleet.model.secret import Secret

CHECK_SECONDS = 30.0  # a wrong password costs some seconds of PAM's delay
ROOT, SUDO, PASSWORD, NONE = "root", "sudo", "password", "none"


_ADMIN = "give the commands of `fleet plan --admin` to an administrator"
_NO_ROOT = {
    PASSWORD: f"set `become_password: env:NAME` in the inventory, or {_ADMIN}",
    NONE: f"use a login that is root, or {_ADMIN}",
}


@dataclass
class Become:
    """The way in which this login becomes root: root (it is), sudo, password (sudo with one), none.

    The password goes only to sudo's standard input. It is tried once, before anything is changed,
    because accounts lock.
    """

    kind: str
    password: Secret | None = None
    _tried: bool = False

    @property
    def possible(self) -> bool:
        """False if an administrator has to run the commands."""
        return self.kind in {ROOT, SUDO} or (self.kind == PASSWORD and self.password is not None)

    def describe(self) -> str:
        """Return a description for people."""
        return {
            ROOT: "the login is root",
            SUDO: "sudo without a password",
            PASSWORD: "sudo with a password" if self.password else "sudo asks for a password",
            NONE: "sudo is not installed",
        }[self.kind]

    def wrap(self, command: Command) -> Command:
        """Return the command as root. `-k`: no sudo ticket of another login is used or kept."""
        if self.kind == ROOT:
            return command
        if self.kind == PASSWORD:
            return Command(("sudo", "-k", "-S", "-p", "", "--", *command.argv))
        return Command(("sudo", "-n", "--", *command.argv))

    def stdin(self) -> Iterator[bytes]:
        """Yield the input of sudo: only the password. The listed commands read nothing."""
        if self.kind == PASSWORD and self.password is not None:
            yield self.password.reveal().encode() + b"\n"

    def prove(self, session: Session) -> None:
        """Test the rights once with a command that does nothing. Raises BecomeError."""
        if self._tried or self.kind == ROOT:
            return
        if not self.possible:
            raise BecomeError(
                f"fleet needs root on the device: {self.describe()}",
                step="become",
                hint=_NO_ROOT[self.kind],
            )
        harmless = self.wrap(Command(("true",)))
        result = session.run(harmless, "become", stdin=self.stdin(), seconds=CHECK_SECONDS)
        if not result.ok:
            raise BecomeError(
                f"sudo on the device refused: {_words(result)}",
                step="become",
                hint="correct `become_password` in the inventory, or allow the user to use "
                "sudo; to test it, run on the device: sudo -v",
            )
        self._tried = True

    def run(self, session: Session, command: Command, step: str, seconds: float) -> Result:
        """Run one listed command as root. Raises DeviceError with its last words."""
        self.prove(session)
        result = session.run(
            self.wrap(command), step, stdin=self.stdin(), seconds=seconds, mutates=True
        )
        if not result.ok:
            raise DeviceError(
                f"`{command.argv[0]}` failed on the device with status {result.status}: "
                f"{_words(result)}",
                step=step,
            )
        return result


def _words(result: Result) -> str:
    """Return the last words without sudo's prompt."""
    text = masked(result.error_text or result.text)
    lines = re.sub(r"(?m)^\[sudo\] password for [^:\n]*(: |$)", "", text).splitlines()
    lines = [line.partition("[sudo] password for ")[0].strip() for line in lines]
    return " | ".join([line for line in lines if line][-4:]) or "no message"
