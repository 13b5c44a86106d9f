"""A user's command on many devices, with its output line by line and its exit status."""

from __future__ import annotations

import codecs
import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from fleet.device.shell import AfterMark, device_script
from fleet.engine.budget import allowed
from fleet.engine.lease.lease import Lease
from fleet.engine.pool import NOT_ATTEMPTED, DeviceResult, PoolOptions, on_every_device
from fleet.engine.session import Beginning, Session
from fleet.engine.system.become import ROOT, Become
from fleet.model.command import Command
from fleet.model.errors import DeadlineError, DeviceError, InputError
from fleet.model.events import Listener, Output
from fleet.model.inventory import Host
from fleet.model.masking import StreamMasker
from fleet.model.rollout import RolloutSpec
from fleet.ops.lease import HEAD_BYTES, Holders, holders_in, who_command

KEEP_BYTES = 1 << 20  # the stored part of each stream of a device, for JSON
GRACE_SECONDS = 15.0  # the device ends the command itself; the host only if it does not
_ENDED = {124, 128 + 9, 128 + 15}
_POWERSHELL = ("powershell.exe", "-NoLogo", "-NoProfile", "-NonInteractive", "-Command")


@dataclass(frozen=True)
class Executed:
    """The exit status and the output of a command on one device.

    Each stream is cut at KEEP_BYTES. `holders` is None if the command took the lease itself.
    """

    status: int
    stdout: str
    stderr: str
    holders: Holders | None = None
    PLAIN: ClassVar[str] = "status stdout stderr **holders"


@dataclass(frozen=True)
class Executing:
    """A command to execute on devices.

    A single word is a line for the device's shell; several words are a program with its arguments.
    `timeout` is in seconds. With `lease` nobody else writes meanwhile. With `sudo` it runs as root,
    in the same way as provisioning.
    """

    words: tuple[str, ...]
    timeout: float
    lease: bool = False
    sudo: bool = False

    def argv(self, system: str) -> tuple[str, ...]:
        """Return the arguments to start on a `posix` or `windows` device."""
        if len(self.words) > 1:
            return self.words
        return (*(_POWERSHELL if system == "windows" else ("sh", "-c")), *self.words)

    def work(self, session: Session, result: DeviceResult[Executed]) -> None:
        """Execute the command on one device; `value` gets its output and the holders of the board.

        Raises DeviceError for an exit status other than 0, and DeadlineError if the command was too
        late.
        """
        limit = math.ceil(allowed(session.host, self.timeout))
        argv = self.argv(session.transport.system)
        command = device_script("exec", str(limit), *argv)
        become = _root(session) if self.sudo else Become(ROOT)
        out, err = _Stream(session, "stdout"), _Stream(session, "stderr")
        head = Beginning(AfterMark(out.take), HEAD_BYTES)

        command = become.wrap(command)

        def run(command: Command) -> tuple[int, float]:
            done = session.run(
                command,
                "exec",
                stdin=become.stdin(),
                seconds=limit + GRACE_SECONDS,
                mutates=self.lease,
                on_stdout=head.take,
                on_stderr=err.take,
            )
            return done.status, done.seconds

        if self.lease:
            with Lease(session, f"exec {shlex.join(self.words)}") as lease:
                lease.take()
                status, seconds = run(command)
        else:
            status, seconds = run(who_command(command))
        out.end()
        err.end()
        holders = None if self.lease else holders_in(head.text, session.host.name)
        result.value = Executed(status, out.text, err.text, holders)
        judge(status, session.host.name, late=seconds >= limit and status in _ENDED, limit=limit)
        result.outcome, result.text = "ok", "status 0"


def _root(session: Session) -> Become:
    """Return how this login becomes root.

    Raises InputError on Windows, and BecomeError if the login cannot become root.
    """
    if session.transport.system == "windows":
        raise InputError(
            "--sudo does not work on Windows, which has no sudo that fleet can use",
            hint="use a login that is an administrator, and leave out --sudo",
        )
    from fleet.engine.system.provision import ask_rights  # noqa: PLC0415 - with --sudo only

    become, _ = ask_rights(session)
    become.prove(session)
    return become


def judge(status: int, host: str, *, late: bool, limit: int) -> None:
    """Raise DeadlineError if `late` (after `limit` s), DeviceError for a status other than 0."""
    if late:
        raise DeadlineError(
            f"the command did not finish within {limit} s, so fleet stopped it",
            step="exec",
            hint="allow more time with --timeout, such as --timeout 5m",
        )
    if status:
        raise DeviceError(
            f"the command failed with exit status {status}",
            step="exec",
            hint=f"read the output of the command above; to work on the device: fleet shell {host}",
        )


@dataclass
class _Stream:
    """A stream of a command. Its text goes to the listener at once, and the beginning is stored."""

    session: Session
    name: str
    text: str = ""
    _masked: StreamMasker = field(default_factory=StreamMasker)

    def __post_init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, chunk: bytes) -> None:
        self._pass(self._masked.take(chunk))

    def end(self) -> None:
        self._pass(self._masked.end(), final=True)

    def _pass(self, chunk: bytes, *, final: bool = False) -> None:
        text = self._decoder.decode(chunk, final)
        if text:
            self.text += text[: KEEP_BYTES - len(self.text)]
            self.session.emit(Output(self.session.host.name, self.name, text))


def in_waves(
    hosts: Sequence[Host],
    spec: RolloutSpec | None,
    work: Callable[[Sequence[Host]], list[DeviceResult[Executed]]],
) -> list[DeviceResult[Executed]]:
    """Run `work` on the waves of `spec`, one after the other.

    A failed wave stops the later ones.
    """
    if spec is None:
        return work(hosts)
    from fleet.engine.rollout.deploying import waves_of  # noqa: PLC0415 - only for waves
    from fleet.engine.rollout.judge import judge as verdict_of  # noqa: PLC0415
    from fleet.engine.rollout.judge import tally  # noqa: PLC0415

    results: dict[str, DeviceResult[Executed]] = {}
    for wave in waves_of(spec, hosts):
        wave_results = work([host for host in hosts if host.name in wave.hosts])
        results |= {result.host.name: result for result in wave_results}
        outcomes = {result.host.name: result.outcome for result in wave_results}
        if verdict_of(wave, spec, tally(wave, outcomes)).word != "go":
            break
    return [results.get(host.name) or DeviceResult(host, NOT_ATTEMPTED) for host in hosts]


def execute_everywhere(
    job: Executing,
    hosts: Sequence[Host],
    listener: Listener,
    *,
    parallel: int,
    accept_new: bool = False,
    spec: RolloutSpec | None = None,
) -> list[DeviceResult[Executed]]:
    """Execute the command on every host, in the waves of `spec`, if it is not None.

    `accept_new` pins new host keys.
    """
    options = PoolOptions[Executed](parallel=parallel, accept_new=accept_new)

    def work(some: Sequence[Host]) -> list[DeviceResult[Executed]]:
        return on_every_device(some, job.work, listener, options)

    return in_waves(hosts, spec, work)
