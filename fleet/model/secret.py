"""Secret values: passwords by reference."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from fleet.model import masking
from fleet.model.errors import InputError, Position, reason

_CMD_SECONDS = 30.0  # a password manager may ask for a touch; longer means that it hangs


class Secret:
    """A value that can be used but not printed: every conversion to text gives `***`.

    `reveal()` is the only access. `transport` calls it, and so does `fleet serve token`, which
    prints a token.
    """

    __slots__ = ("_value",)
    PLAIN = ""

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value. From now on it is masked in all output."""
        masking.reveal(self._value)
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __str__(self) -> str:
        return "***"

    def __format__(self, spec: str) -> str:
        return "***"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is never pickled")


@dataclass(frozen=True)
class SecretRef:
    """The location of a secret, read on demand. Its text form is the reference only.

    `base` is the folder for a relative `file:`. `literal` is a value from an Ansible inventory in
    clear text. `position` is that of the reference.
    """

    reference: str
    base: Path
    literal: Secret | None = None
    position: Position | None = field(default=None, compare=False)

    def get(self) -> Secret:
        """Return the secret.

        Raises InputError if the reference leads nowhere, or if the value cannot be masked in
        output.
        """
        try:
            secret = self.literal or resolve(self.reference, self.base)
            refuse_unmaskable(secret, f"the password of '{self.reference}'")
        except InputError as error:
            error.position = error.position or self.position
            raise
        return secret


def refuse_unmaskable(secret: Secret, what: str) -> None:
    """Raise InputError for a value too short to mask, or one that everybody may see."""
    value = secret._value.strip()
    if len(value) < masking.SHORT:
        raise InputError(
            f"{what} has fewer than {masking.SHORT} characters, so fleet cannot hide it in the "
            "output of devices",
            hint="use a longer password, or log in with a key (identity_file)",
        )
    if masking.published(value):
        raise InputError(
            f"{what} is also the name of a host; fleet prints names of hosts, so the output would "
            "show the password",
            hint="rename the host in the inventory (`host:` keeps its address), or choose another "
            "password",
        )


def resolve(reference: str, base: Path) -> Secret:
    """Return the secret of `env:NAME`, `file:PATH` (relative to `base`) or `cmd:PROGRAM ARGS`.

    For a file or a program it is the first line. Raises InputError that names the reference, never
    the value.
    """
    kind, _, rest = reference.partition(":")
    if kind == "env" and rest:
        value = os.environ.get(rest)
        if value is None:
            raise InputError(
                f"the environment variable {rest} for the password is not set",
                hint=f"export {rest}=... (then run the command again)",
            )
        return Secret(value)
    if kind == "file" and rest:
        path = base / Path(rest).expanduser()
        try:
            return Secret(path.read_text("utf-8").split("\n", 1)[0])
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"cannot read the password from the file {path}: {reason(error)}",
                hint=f"correct the path after `file:`; ls -l {shlex.quote(str(path))}",
            ) from error
    if kind == "cmd" and rest:
        return _from_command(rest)
    raise InputError(
        "a password or passphrase must be a reference, not the secret itself",
        hint="write a reference instead: env:NAME, file:PATH or cmd:PROGRAM",
    )


def _from_command(line: str) -> Secret:
    try:
        done = subprocess.run(
            shlex.split(line), capture_output=True, text=True, timeout=_CMD_SECONDS, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        why = (
            f"the command ended with exit status {error.returncode}"
            if isinstance(error, subprocess.CalledProcessError)
            else f"the command did not end within {_CMD_SECONDS:g} s"
            if isinstance(error, subprocess.TimeoutExpired)
            else reason(error)
        )
        raise InputError(
            f"cannot read the password from the command '{line}': {why}",
            hint=f"run the command by hand to see why: {line}",
        ) from error
    return Secret(done.stdout.split("\n", 1)[0])
