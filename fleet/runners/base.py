"""The interface of a runner: what it brings, what it starts, how its outcome is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from fleet.model.bundle import Bundle
from fleet.model.files import FileRef
from fleet.model.playbook import RunSpec
from fleet.model.record import Metrics


@dataclass(frozen=True)
class Start:
    """One start on a device. `config` is the text of a configuration for this run only.

    `cwd` is relative to the release; `argv` may hold `{release}` and `{work}` (the work
    folder of this run, which has prompt.txt and config.json). `collect` is the file of the
    work folder that holds the outcome. `feeds_prompt`: the prompt goes to standard input.
    """

    argv: tuple[str, ...]
    cwd: str
    collect: str
    timeout: float
    prompt: bytes = b""
    config: str = ""
    feeds_prompt: bool = False


@dataclass(frozen=True)
class Ended:
    """How a start ended on the device: exit status, standard output, the collected file."""

    status: int
    stdout: bytes
    collected: bytes


@dataclass(frozen=True)
class Outcome:
    """What a run gave. `raw` are files to keep as they are: name → content.

    `problems` says why it does not count; `finish` is eos, token-limit or None.
    """

    metrics: Metrics = field(default_factory=Metrics)
    text: str = ""
    finish: str | None = None
    problems: tuple[str, ...] = ()
    raw: Mapping[str, bytes] = field(default_factory=dict)


class Runner(Protocol):
    """One way to run a bundle on a device. Registered in `fleet.runners.RUNNERS`."""

    name: str

    def files(self, *, has_tool: bool) -> tuple[FileRef, ...]:
        """Files of ours that go into the release, for a runtime with or without the tool."""
        ...

    def health(self, bundle: Bundle, *, has_tool: bool, timeout: float) -> Start:
        """Opens a real session and closes it; exit status 0 means that it opened."""
        ...

    def start(self, bundle: Bundle, run: RunSpec, *, has_tool: bool) -> Start:
        """One run of a prompt."""
        ...

    def read(self, start: Start, run: RunSpec, bundle: Bundle, ended: Ended) -> Outcome:
        """What the run gave. Never raises for bad output of the device: that is a problem."""
        ...
