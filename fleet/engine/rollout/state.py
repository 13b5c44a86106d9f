"""The state of a run, folded from the lines of its journal, both live and after a kill."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleet.engine.pool import FINE
from fleet.engine.rollout import lines
from fleet.model.rollout import ALL_AT_ONCE, RolloutSpec

LEFT, BACK = "left", "rolled back"  # final outcomes of a rollback


@dataclass
class RolloutDevice:
    """The state of one device in the run.

    `outcome` is that of the last attempt, "" before one. `release` is its new release, `was` the
    current one before this run switched anything. `switched` is True after a switch began,
    `touched` after any step. `boot_id` is that of the boot during the deploy. `looked` is the
    outcome of the check after the soak, `back` that of the rollback. `afar`: the workers of a
    cluster report the steps, which may be lost with a worker. `hint` is the cure of a failure as it
    was shown.
    """

    name: str
    wave: str
    outcome: str = ""
    text: str = ""
    attempts: int = 0
    step: str = ""
    release: str = ""
    was: str | None = None
    boot_id: str = ""
    touched: bool = False
    switched: bool = False
    looked: str = ""
    back: str = ""
    back_text: str = ""
    afar: bool = False
    hint: str = ""

    @property
    def fine(self) -> bool:
        """True if the deploy has nothing more to do here."""
        return self.outcome in FINE

    @property
    def owed(self) -> bool:
        """True if the switch began or may have begun, and later steps may be missing."""
        unheard = self.afar and self.attempts > 0 and self.outcome in {"", "unreachable"}
        return (self.switched or unheard) and not self.fine

    @property
    def to_check(self) -> bool:
        """True if this run changed the device and no check followed."""
        return self.fine and not self.looked and (self.touched or self.outcome == "changed")

    @property
    def to_roll_back(self) -> bool:
        """True if this run switched the device and its rollback is not settled."""
        return self.switched and self.back not in {LEFT, BACK}


@dataclass
class RunState:
    """The state of a run. `rolling` is the reason of a rollback; `ending` is "" while it works.

    `began` is None before the first line.
    """

    began: lines.RunHeader | None = None
    devices: dict[str, RolloutDevice] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)
    releases: dict[str, str] = field(default_factory=dict)
    rolling: str = ""
    ending: str = ""
    text: str = ""

    def take(self, line: lines.JournalLine) -> None:
        """Apply one line of the journal. Raises KeyError for an unknown host."""
        match line:
            case lines.RunHeader():
                self._begin(line)
            case lines.DeviceLine():
                self._device(self.devices[line.host], line)
            case lines.JudgedLine(verdict="go"):
                self.passed.add(line.wave)
            case lines.JudgedLine():
                self.passed.discard(line.wave)
            case lines.ResumeLine():
                self.ending = self.text = ""
                if line.forced:
                    self.releases.clear()
            case lines.RollingLine():
                self.rolling = line.text
            case lines.FinishedLine():
                self.ending, self.text = line.ending, line.text
            case lines.InterruptedLine():
                self.ending, self.text = "interrupted", ""

    def _begin(self, header: lines.RunHeader) -> None:
        self.began = header
        self.devices = {
            name: RolloutDevice(name, wave.name, afar=header.afar)
            for wave in header.waves
            for name in wave.hosts
        }

    def _device(self, device: RolloutDevice, line: lines.DeviceLine) -> None:
        match line:
            case lines.BeginLine():
                device.attempts += 1
                device.outcome, device.text, device.step, device.looked = "", "", "", ""
            case lines.PlanLine():
                device.release, device.boot_id = line.release, line.boot_id
                self.releases.setdefault(line.device_kind, line.release)
                if not device.switched:
                    device.was = line.was
            case lines.StepLine():
                device.step, device.touched = line.step, True
                device.switched = device.switched or line.step == "switch"
            case lines.EndLine():
                device.outcome, device.text, device.hint = line.outcome, line.text, line.hint
            case lines.LookLine():
                device.looked = line.outcome
                if device.looked not in FINE:
                    device.outcome, device.text = line.outcome, line.text
            case lines.BackLine():
                device.back, device.back_text = line.outcome, line.text

    @property
    def header(self) -> lines.RunHeader:
        """The first line of a run that has begun."""
        assert self.began is not None
        return self.began

    @property
    def spec(self) -> RolloutSpec:
        """The `rollout:` of the playbook, or its default."""
        return self.header.rollout or ALL_AT_ONCE

    @property
    def complete(self) -> bool:
        """True if nothing is left to do: everything is deployed and checked, or rolled back."""
        if self.rolling:
            return not any(device.to_roll_back for device in self.devices.values())
        soak = bool(self.spec.soak)
        return bool(self.devices) and all(
            device.fine and not (soak and device.to_check) for device in self.devices.values()
        )

    @property
    def word(self) -> str:
        """The word in a list: finished, rolled back, stopped, failed, interrupted, or
        unfinished.
        """
        if self.complete:
            return "rolled back" if self.rolling else "finished"
        return self.ending or "unfinished"

    def outcome(self, device: RolloutDevice) -> tuple[str, str]:
        """Return outcome and text of a device for people, including a rollback."""
        if device.back:
            word = "rolled back" if device.back == BACK else "not rolled back"
            return word, device.back_text
        return device.outcome, device.text

    def rows(self) -> list[dict[str, str]]:
        """Return host, wave, outcome and text of every device, for JSON."""
        return [
            row(device.name, device.wave, *self.outcome(device)) for device in self.devices.values()
        ]


def row(host: str, wave: str, outcome: str, text: str) -> dict[str, str]:
    """Return host, wave, outcome and text of a device under these keys, for JSON."""
    return {"host": host, "wave": wave, "outcome": outcome, "text": text}
