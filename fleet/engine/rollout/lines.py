"""The kinds of lines of a rollout's journal. The key `line` of each is the name of its class.

A reader ignores kinds that it does not know, because a later version may add some. Fields with a
default are missing in journals of earlier versions, or no reader needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct, field

from fleet.engine.options import DeployOptions
from fleet.engine.rollout.inputs import Inputs
from fleet.engine.rollout.waves import Wave
from fleet.model.plain import read_plain
from fleet.model.rollout import RolloutSpec

SCHEMA = 1


def _tag(name: str) -> str:
    return name.removesuffix("Line").lower()


class JournalLine(Struct, frozen=True, kw_only=True, tag_field="line", tag=_tag):
    """A line. `at` is the time in UTC. `Journal.write` sets it."""

    at: str = ""


class HereLine(JournalLine, frozen=True, kw_only=True):
    """A line that names the process that writes from here on. `Journal.write` sets the names."""

    pid: int = 0
    workstation: str = ""
    owner: str = ""


class RunHeader(HereLine, frozen=True, kw_only=True, tag="run"):
    """The first line: the start of a run. `inputs` is None for a pipe.

    `afar`: the workers of a cluster report the steps.
    """

    run: str
    name: str = ""
    rollout: RolloutSpec | None = None
    waves: tuple[Wave, ...]
    options: DeployOptions = field(default_factory=DeployOptions)
    afar: bool = False
    inputs: Inputs | None = None
    hashes: Mapping[str, str] = field(default_factory=dict)
    schema: int = SCHEMA
    fleet: str = ""
    PLAIN: ClassVar[str] = (
        "at schema run fleet pid workstation owner name rollout waves options afar? inputs? hashes?"
    )


class ResumeLine(HereLine, frozen=True, kw_only=True):
    """A new process continues from here. `forced`: the user accepts changed inputs."""

    forced: bool
    PLAIN: ClassVar[str] = "at forced pid workstation owner"


class DeviceLine(JournalLine, frozen=True, kw_only=True):
    """A line about one device."""

    host: str


class BeginLine(DeviceLine, frozen=True, kw_only=True):
    """An attempt at a device begins."""

    wave: str = ""


class PlanLine(DeviceLine, frozen=True, kw_only=True):
    """The release of a device. `was` is its current one, `device_kind` its target and arch."""

    release: str
    was: str | None = None
    device_kind: str
    boot_id: str


class StepLine(DeviceLine, frozen=True, kw_only=True):
    """A step that begins. `size` is in bytes."""

    step: str
    text: str = ""
    size: int = field(default=0, name="bytes")


class OutcomeLine(DeviceLine, frozen=True, kw_only=True):
    """The outcome of an attempt, a check or a rollback."""

    outcome: str
    text: str


class EndLine(OutcomeLine, frozen=True, kw_only=True):
    """The end of an attempt. `error` is the class of the error, `step` the step that failed."""

    error: str = ""
    step: str = ""
    hint: str = ""
    round_trips: int = 0
    bytes_sent: int = 0
    seconds: float = 0.0


class LookLine(OutcomeLine, frozen=True, kw_only=True):
    """The outcome of the check after the soak."""


class BackLine(OutcomeLine, frozen=True, kw_only=True):
    """The outcome of a rollback."""


class JudgedLine(JournalLine, frozen=True, kw_only=True):
    """The verdict on a wave: go, stop or rollback."""

    wave: str
    verdict: str
    text: str = ""


class SoakLine(JournalLine, frozen=True, kw_only=True):
    """A wait of `seconds` before the check of a wave."""

    wave: str = ""
    seconds: float = 0.0


class RollingLine(JournalLine, frozen=True, kw_only=True):
    """A rollback of the run begins; `text` is its reason."""

    text: str


class FinishedLine(JournalLine, frozen=True, kw_only=True):
    """The end of the run."""

    ending: str = "finished"
    text: str = ""


class InterruptedLine(JournalLine, frozen=True, kw_only=True):
    """The user stopped the run."""


_KINDS: dict[object, type[JournalLine]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (
        RunHeader, ResumeLine, BeginLine, PlanLine, StepLine, EndLine, LookLine, BackLine,
        JudgedLine, SoakLine, RollingLine, FinishedLine, InterruptedLine,
    )
}  # fmt: skip


def read_line(data: Mapping[str, Any]) -> JournalLine | None:
    """Return a line from its JSON, None for an unknown kind.

    Raises KeyError, TypeError or InputError for an invalid line.
    """
    kind = _KINDS.get(data["line"])
    return None if kind is None else read_plain(kind, data, "line", "")
