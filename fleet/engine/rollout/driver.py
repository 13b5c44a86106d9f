"""The rollout: wave by wave, with a verdict after each, and every step recorded first."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from fleet.engine.pool import FINE, DeviceResult
from fleet.engine.rollout import lines
from fleet.engine.rollout.journal import Journal
from fleet.engine.rollout.judge import Tally, WaveVerdict, judge, tally
from fleet.engine.rollout.state import BACK, LEFT, RolloutDevice
from fleet.engine.rollout.waves import Wave
from fleet.model.errors import WorkstationError
from fleet.model.events import Listener, Looked, RolledBack, Soaking, WaveJudged, WaveStarted
from fleet.model.masking import masked

Done = Callable[[DeviceResult[None]], None]
Word = Literal["finished", "failed", "stopped", "rolled back", "not rolled back"]


class WaveExecutor(Protocol):
    """The work on devices. Each result goes to `done`, in the caller's thread."""

    def deploy(self, names: Sequence[str], admit: Callable[[str], bool], done: Done) -> None:
        """Deploy to each device that `admit` accepts. `admit` is called in order."""

    def check(self, devices: Sequence[RolloutDevice], done: Done) -> None:
        """Check devices again after the soak."""

    def back(self, devices: Sequence[RolloutDevice], done: Done) -> None:
        """Switch devices back to `was` if `release` is current."""

    def wait(self, seconds: float) -> None:
        """Wait for the soak time."""


@dataclass(frozen=True)
class Ending:
    """The end of a rollout, with the reason if it did not succeed."""

    word: Word
    text: str = ""


class Rollout:
    """A run of the waves of a journal, from their current state.

    A finished device is not contacted again, except for a pending check after the soak. After a
    verdict other than `go`, no further device is started.
    """

    def __init__(
        self, executor: WaveExecutor, journal: Journal, say: Listener, *, quiet: bool = False
    ) -> None:
        self._executor, self._journal = executor, journal
        self._state = journal.state
        self._say: Listener = (lambda _: None) if quiet else say
        self.results: dict[str, DeviceResult[None]] = {}

    def run(self) -> Ending:
        """Continue to the end. A KeyboardInterrupt is recorded and raised again."""
        try:
            ending = self._back(self._state.rolling) if self._state.rolling else self._forth()
        except KeyboardInterrupt:
            with contextlib.suppress(Exception):
                self._journal.write(lines.InterruptedLine())
            raise
        self._journal.write(lines.FinishedLine(ending=ending.word, text=ending.text))
        return ending

    def _forth(self) -> Ending:
        for wave in self._state.header.waves:
            verdict = self._wave(wave)
            if verdict.word == "go":
                continue
            begun = all(self._state.devices[name].outcome for name in wave.hosts)
            why = f"stopped {'after' if begun else 'in'} {wave.title}: {verdict.text}"
            return self._back(why) if verdict.word == "rollback" else Ending("stopped", why)
        bad = sum(1 for device in self._state.devices.values() if not device.fine)
        if bad:
            return Ending(
                "failed",
                f"{bad} of {len(self._state.devices)} devices failed or were not attempted",
            )
        return Ending("finished")

    def _wave(self, wave: Wave) -> WaveVerdict:
        todo = [name for name in wave.hosts if not self._state.devices[name].fine]
        soaking = self._state.spec.soak and self._to_check(wave)
        if not todo and not soaking and wave.name in self._state.passed:
            return WaveVerdict("go")
        self._say(WaveStarted("", wave.name, f"{wave.title}: {_devices(todo, wave)}", tuple(todo)))
        waiting = set(todo)
        counts = self._tally(wave, waiting)
        unkept: list[str] = []

        def admit(name: str) -> bool:
            if self._judge(wave, counts, unkept).word != "go":
                return False
            self._journal.write(lines.BeginLine(host=name, wave=wave.name))
            return True

        def done(result: DeviceResult[None]) -> None:
            if isinstance(result.error, WorkstationError):
                unkept.append(result.error.message)
            else:
                waiting.discard(result.host.name)
                counts.add(result.outcome)
            self._end(result)

        if todo:
            self._executor.deploy(todo, admit, done)
        verdict = self._judge(wave, counts, unkept)
        if verdict.word == "go" and self._state.spec.soak:
            self._soak(wave)
            verdict = judge(wave, self._state.spec, self._tally(wave, waiting))
        self._journal.write(
            lines.JudgedLine(wave=wave.name, verdict=verdict.word, text=verdict.text)
        )
        self._say(WaveJudged("", wave.name, verdict.word, verdict.text))
        return verdict

    def _judge(self, wave: Wave, counts: Tally, unkept: Sequence[str]) -> WaveVerdict:
        """Return the verdict of a wave.

        If the devices are well but this workstation could not store a result, the rollout stops
        without blaming a device.
        """
        verdict = judge(wave, self._state.spec, counts)
        if verdict.word == "go" and unkept and self._state.spec.on_fail != "continue":
            return WaveVerdict("stop", unkept[0])
        return verdict

    def _tally(self, wave: Wave, waiting: set[str]) -> Tally:
        """Count the outcomes. Waiting devices have none, even if an earlier process
        recorded one.
        """
        devices = self._state.devices
        return tally(wave, {n: devices[n].outcome for n in wave.hosts if n not in waiting})

    def _end(self, result: DeviceResult[None]) -> None:
        self.results[result.host.name] = result
        self._journal.write(lines.EndLine(
            host=result.host.name,
            outcome=result.outcome,
            text=result.text,
            error=type(result.error).__name__ if result.error else "",
            step=result.error.step if result.error else "",
            hint=masked(result.error.hint or result.error.cure) if result.error else "",
            round_trips=result.round_trips,
            bytes_sent=result.bytes_sent,
            seconds=round(result.seconds, 3),
        ))  # fmt: skip

    def _to_check(self, wave: Wave) -> list[RolloutDevice]:
        devices = [self._state.devices[name] for name in wave.hosts]
        return [device for device in devices if device.to_check]

    def _soak(self, wave: Wave) -> None:
        """Wait, then check each device of the wave that this run changed."""
        devices = self._to_check(wave)
        if not devices:
            return
        seconds = self._state.spec.soak
        self._journal.write(lines.SoakLine(wave=wave.name, seconds=seconds))
        text = f"{wave.title}: fleet waits {seconds:g} s, then checks {len(devices)} devices again"
        self._say(Soaking("", wave.name, text, seconds))
        self._executor.wait(seconds)
        self._executor.check(devices, self._checked)

    def _checked(self, result: DeviceResult[None]) -> None:
        name = result.host.name
        fine = result.outcome in FINE
        text = result.text if fine else f"the check after the soak time failed: {result.text}"
        self._journal.write(lines.LookLine(host=name, outcome=result.outcome, text=text))
        self._say(Looked(name, result.outcome, text))
        if not fine:
            before = self.results.get(name)
            if before is not None:
                result.records, result.bytes_sent = before.records, before.bytes_sent
                result.bytes_relayed = before.bytes_relayed
            result.text = text
            self.results[name] = result

    def _back(self, why: str) -> Ending:
        """Switch back every device that this run switched, and name those that cannot be."""
        if not self._state.rolling:
            self._journal.write(lines.RollingLine(text=why))
        asked = [device for device in self._state.devices.values() if device.to_roll_back]
        for device in asked:
            if device.was is None:
                self._settle(
                    device, LEFT, "the device has no earlier release, so the new release stays"
                )
        self._executor.back([device for device in asked if device.was is not None], self._returned)
        every = [device for device in self._state.devices.values() if device.switched]
        count = sum(1 for device in every if device.back == BACK)
        text = f"{why}; fleet rolled back {count} of {len(every)} changed devices"
        left = [device.name for device in every if device.back != BACK]
        if left:
            text += f", not: {', '.join(left)}"
        open_ = any(device.to_roll_back for device in every)
        return Ending("not rolled back" if open_ else "rolled back", text)

    def _returned(self, result: DeviceResult[None]) -> None:
        device = self._state.devices[result.host.name]
        word = {"changed": BACK, "unchanged": LEFT}.get(result.outcome, result.outcome)
        if result.error is not None:
            self.results[device.name] = result
        self._settle(device, word, result.text)

    def _settle(self, device: RolloutDevice, word: str, text: str) -> None:
        self._journal.write(lines.BackLine(host=device.name, outcome=word, text=text))
        self._say(RolledBack(device.name, *self._state.outcome(device)))


def _devices(todo: Sequence[str], wave: Wave) -> str:
    if len(todo) == len(wave.hosts):
        return f"{len(todo)} devices"
    return f"{len(todo)} of {len(wave.hosts)} devices"
