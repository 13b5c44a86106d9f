"""A command for a device, as data: argv and environment, never shell text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fleet.model.errors import InputError

_ENV_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


@dataclass(frozen=True)
class Call:
    """A task of fleet by name and arguments. `fleet.device.call` maps it to a device program."""

    name: str
    args: tuple[str, ...] = ()


@dataclass(frozen=True)
class Command:
    """The exact `argv` to start, with `env` added, in the folder `cwd`.

    `unset` names variables that are removed first (otherwise DSP_LIBRARY_PATH overrides fleet's).
    The transport does the quoting. A device without a POSIX shell cannot run fleet's scripts;
    `call` is the same task for such a device.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    unset: tuple[str, ...] = ()
    call: Call | None = None

    def __post_init__(self) -> None:
        if not self.argv:
            raise InputError(
                "the command to run on the device is empty", hint="name a program and its arguments"
            )
        called = self.call.args if self.call is not None else ()
        for text in (*self.argv, *self.env.values(), self.cwd, *called):
            if "\0" in text:
                raise InputError(
                    "an argument of the command for the device contains a NUL character (byte 0)",
                    hint="remove the NUL character",
                )
        for name in (*self.env, *self.unset):
            if not _ENV_NAME.match(name):
                raise InputError(
                    f"'{name}' cannot name an environment variable",
                    hint="use letters, digits and _",
                )

    def then(self, command: Command) -> Command:
        """Return `command` as started by this script, which ends by executing its last
        arguments.
        """
        call = None
        if self.call is not None and command.call is not None:
            call = Call(self.call.name, (*self.call.args, command.call.name, *command.call.args))
        return replace(command, argv=(*self.argv, *command.argv), call=call)


def script(
    source: str, *args: str, env: Mapping[str, str] | None = None, name: str = ""
) -> Command:
    """Return a POSIX shell script of fleet as a command; `args` become $1, $2, ...

    `name` is the same task for devices without such a shell, "" if they do not support it.
    """
    call = Call(name, args) if name else None
    return Command(("sh", "-c", source, "fleet", *args), env=env or {}, call=call)


@dataclass(frozen=True)
class Result:
    """The result of a command. `status` is the exit status, or 128+N after a signal."""

    status: int
    stdout: bytes
    stderr: bytes
    seconds: float

    @property
    def ok(self) -> bool:
        """True for exit status 0."""
        return self.status == 0

    @property
    def text(self) -> str:
        """Standard output as text. Bytes that are not UTF-8 are replaced."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def error_text(self) -> str:
        """Standard error as stripped text."""
        return self.stderr.decode("utf-8", "replace").strip()
