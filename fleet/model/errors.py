"""The one exception tree of fleet.

FleetError                     anything fleet reports; carries the cure
├── InputError                 a file, key, value or option the user gave is wrong (exit 2)
│   ├── InventoryError         inventory file
│   ├── PlaybookError          playbook file
│   ├── LockFileError          fleet.lock is missing, damaged, or not what would be deployed
│   └── SuiteError             a suite of prompts, or samples of tensors, are wrong
├── TransportError             the way to the device
│   ├── UnreachableError       no connection within the deadline (exit 3)
│   ├── ConnectionLostError    the connection was there and broke (exit 3)
│   ├── DeadlineError          connected, but the call did not end in time (exit 3)
│   ├── AuthError              the device refuses the user, key or password (exit 3)
│   ├── HostKeyError           unknown, changed or revoked host key (exit 3)
│   └── IdentityError          the device is not the one that the inventory means (exit 3)
├── DeviceError                the device answered, and what it answered is a failure
│   ├── DiskFullError          no blocks or inodes left for the deploy user
│   ├── TransferError          bytes arrived that are not the ones that were sent
│   ├── HealthError            no NPU session could be opened; the old release stays
│   ├── BecomeError            root is needed, and sudo refuses or is not there
│   ├── LeaseHeldError         somebody else writes to the board or has reserved it
│   └── LeaseLostError         the board was taken over while we wrote to it
├── CancelledError             the user ended it (exit 130)
├── PreflightError             a deploy that cannot work, refused before a byte moves
│   └── BudgetError            the session of a board by the hour is over
├── RuntimeStoreError          a QAIRT runtime is missing, mixed or damaged
├── BundleError                a bundle folder cannot be read
├── AiHubError                 Qualcomm AI Hub gives no model: no access, no answer, job not done
├── RunnerError                a run or its output makes no sense
│   └── ProfileError           a profile cannot be read: garbage, cut off, another locale
│       └── UnknownProfileError  it is no profile of a known kind
├── ProfileStoreError          the file of records cannot be opened, read or written
├── WorkstationError           a file of fleet cannot be written here: disk full, no rights
├── AnswerError                a model gives wrong answers or tensors (exit 1)
├── GateError                  a comparison found what --fail-if names (exit 1)
├── NotComparableError         a comparison cannot say what it was asked (exit 4)
└── LabError                   a lab board cannot be made
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fleet.model.masking import masked


@dataclass(frozen=True)
class Position:
    """A place in a text file. `line` and `column` count from 1; 0 means unknown."""

    file: Path
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        parts = [str(self.file), *(str(n) for n in (self.line, self.column) if n)]
        return ":".join(parts)


class FleetError(Exception):
    """Root of all errors that fleet reports.

    `message` says what is wrong and why, `hint` what to do next (a command if there is one),
    `device` and `step` where it happened. `others` are the other errors of the same file. No text
    contains a secret: a device may print one, so all are masked.
    """

    exit_code = 1
    retryable = False
    cure = ""  # shown if a caller gives no hint
    PLAIN: ClassVar[str] = (
        "error=__class__.__name__ message hint=advice device step position=place others?"
    )
    others: tuple[FleetError, ...] = ()

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        device: str = "",
        step: str = "",
        position: Position | None = None,
    ) -> None:
        message = masked(message)
        super().__init__(message)
        self.message = message
        self.hint = masked(hint)
        self.device = device
        self.step = step
        self.position = position

    def __str__(self) -> str:
        return ": ".join(
            part for part in (str(self.position or ""), self.device, self.message) if part
        )

    @property
    def advice(self) -> str:
        """The hint, or the cure for errors of this class."""
        return self.hint or self.cure

    @property
    def place(self) -> str:
        """The position in a file, "" if there is none."""
        return str(self.position or "")


_PLAIN: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    (
        (FileExistsError, NotADirectoryError),
        "this path, or a part of it, is a file, not a folder",
    ),
    ((IsADirectoryError,), "this is a folder, not a file"),
    ((RecursionError,), "lists or objects are nested too deep"),
    ((TypeError, AttributeError, IndexError), "a value is missing or of another type"),
)


def reason(error: BaseException) -> str:
    """Return the system's reason in plain words, without codec, errno or Python class."""
    for kinds, words in _PLAIN:
        if isinstance(error, kinds):
            return words
    if isinstance(error, UnicodeDecodeError):
        return (
            f"the text is not valid UTF-8 (byte 0x{error.object[error.start]:02x} at offset "
            f"{error.start})"
        )
    if isinstance(error, KeyError):
        return f"the key {error} is missing"
    if isinstance(error, json.JSONDecodeError):
        return f"this is not valid JSON: {error.msg}"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return "a number has too many digits" if text.startswith("Exceeds the limit") else text


def unforeseen(error: Exception) -> FleetError:
    """Return the error for an unexpected Python exception."""
    text = f"an unexpected error occurred in fleet: {type(error).__name__}: {error}"
    return FleetError(
        text,
        hint="run the command again; if it fails again, report this error to the "
        "maintainers of fleet",
    )


class InputError(FleetError):
    """A file, key, value or option of the user is wrong. Nothing was changed."""

    exit_code = 2


class InventoryError(InputError):
    """The inventory cannot be read, or refers to something that does not exist."""


class PlaybookError(InputError):
    """The playbook cannot be read, or refers to something that does not exist."""


class LockFileError(InputError):
    """fleet.lock is missing or damaged, or the deploy differs from it."""


class SuiteError(InputError):
    """A suite of prompts, or the samples of `verify:`, cannot be read or can never pass."""


class TransportError(FleetError):
    """The connection to the device failed. The device itself may be healthy.

    `adb_state` is the adb server's state of a phone (`unauthorized`, `offline`, `no permissions`;
    packages/modules/adb types.h), or `missing` if adb could not be started.
    """

    exit_code = 3
    adb_state = ""


class UnreachableError(TransportError):
    """No connection within the deadline: wrong address, device off, port closed, no route."""

    retryable = True
    cure = "check the power, the cable and the address of the device; then run the command again"


class ConnectionLostError(TransportError):
    """An open connection broke: cable, reboot, sshd gone. Sent data may be partly on the device."""

    retryable = True
    cure = "check the power and the cable of the device; then run the same command again"


class DeadlineError(TransportError):
    """The device is connected but the call did not end before its deadline."""

    retryable = True
    cure = "run the command again; fleet doctor (if it happens twice)"


class AuthError(TransportError):
    """The device refuses the user, key or password. fleet tries once, because accounts lock."""


class HostKeyError(TransportError):
    """The host key is unknown, changed or revoked. It is never accepted silently."""


class IdentityError(TransportError):
    """The device answers, but its machine id or serial number is not the expected one."""


class DeviceError(FleetError):
    """The device answered and reports a failure of a step."""

    cure = "fleet doctor (examines the device)"


class DiskFullError(DeviceError):
    """No blocks or inodes are left for the deploy user where the release goes."""


class TransferError(DeviceError):
    """A blob on the device has another hash than the blob that was sent."""

    cure = "run the command again; fleet status --verify (if it happens twice)"


class HealthError(DeviceError):
    """The health probe opened no NPU session; `current` was not switched."""


class BecomeError(DeviceError):
    """A listed command needs root, and this login cannot become root. fleet tries once."""


class LeaseHeldError(DeviceError):
    """Another user writes to the board or has reserved it. Nothing was changed."""


class LeaseLostError(DeviceError):
    """The lease was broken, or ended while this workstation slept. Nothing was sent afterwards."""


class CancelledError(FleetError):
    """The user cancelled the work. The device has the old or the new release."""

    exit_code = 130


class PreflightError(FleetError):
    """The deploy cannot work. It was refused before a byte was sent."""


class BudgetError(PreflightError):
    """The session of a board by the hour is over: nothing starts, and what ran was cut."""


class RuntimeStoreError(FleetError):
    """A QAIRT runtime is missing, inconsistent or damaged."""


class BundleError(FleetError):
    """A bundle folder is missing or cannot be parsed."""


class AiHubError(FleetError):
    """Qualcomm AI Hub gives no model: client, token, access, network, or the state of a job."""


class RunnerError(FleetError):
    """The plan or output of a runner is invalid (no profile, unreadable JSON)."""


class ProfileError(RunnerError):
    """A profile cannot be read. `line` counts from 1, 0 if unknown.

    `bare` is the message without the line.
    """

    def __init__(self, message: str, *, line: int = 0, **more: Any) -> None:  # noqa: ANN401
        super().__init__(f"{message} (line {line})" if line else message, **more)
        self.line = line
        self.bare = masked(message)


class UnknownProfileError(ProfileError):
    """A file that is not a profile of a known kind, perhaps no profile at all."""


class ProfileStoreError(FleetError):
    """The file of records cannot be opened, read or written."""


class WorkstationError(FleetError):
    """This workstation cannot write one of fleet's own files. The device is not the cause."""


class AnswerError(FleetError):
    """The model on a device gives wrong answers or tensors."""


class GateError(FleetError):
    """A comparison succeeded and violates `--fail-if`."""


class NotComparableError(FleetError):
    """The conditions differ under `--strict`, or a gate needs a value that was not measured."""

    exit_code = 4


class LabError(FleetError):
    """A lab board cannot be made, found or changed."""
