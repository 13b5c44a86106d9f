"""The life of releases, the same on every kind of device: one after another live, and back."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fleet.doctor.examine import Round, examine
from fleet.engine.deploy import releases
from fleet.engine.deploy.push import Push, PushOptions
from fleet.engine.pool import DeviceResult
from fleet.engine.status import status
from fleet.model.diagnosis import OK, PROBLEM, Diagnosis
from fleet.model.events import Event, Warned
from fleet.model.inventory import Host
from fleet.runtimes.store import RuntimeStore
from tests.toolsets import TOYBOXES, program, toolset
from tests.transport.sshd import Sshd
from tests.transport.windows.pc import a_pc

from .conftest import Desk

PHONE_BASE = Path("/data/local/tmp/fleet")


@dataclass
class Device:
    """One device, and its base folder as it is seen from this machine."""

    host: Host
    base: Path
    source: Path
    events: list[Event] = field(default_factory=list)

    def try_to_push(self, text: str) -> DeviceResult[Any]:
        self.source.mkdir(exist_ok=True)
        (self.source / "model.txt").write_text(text)
        (self.source / "same.txt").write_text("in every release")
        options = PushOptions(keep=2)
        return Push("tiny", [self.source], [self.host], self.events.append, options).push()[0]

    def push(self, text: str) -> DeviceResult[Any]:
        done = self.try_to_push(text)
        assert done.error is None, done.error
        assert not [one for one in self.events if isinstance(one, Warned)]
        return done

    def roll_back(self) -> DeviceResult[Any]:
        (done,) = releases.rollback([self.host], "tiny", self.events.append)
        assert done.error is None, done.error
        return done

    @property
    def current(self) -> str:
        pointer = self.base / "current" / "tiny"
        return pointer.readlink().name if pointer.is_symlink() else pointer.read_text().strip()

    @property
    def live(self) -> str:
        """What a program finds through the live release."""
        folder = self.base / "releases" / "tiny" / self.current
        path = folder / "model.txt"
        if path.is_symlink():  # as the phone sees it: absolute
            return (self.base / "store" / path.readlink().name).read_text()
        return path.read_text()

    def staged(self) -> set[str]:
        return {one.name for one in (self.base / "releases" / "tiny").iterdir()}

    def names(self, folder: str) -> list[str]:
        return sorted(one.name for one in (self.base / folder).iterdir())


@pytest.fixture
def device(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Device]:
    """`phone:TOYBOX`, `windows`, `python`, or tools of an ssh board without Python."""
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "home"))
    kind, _, tools = str(request.param).partition(":")
    source = tmp_path / "source"
    with ExitStack() as stack:
        if kind == "phone":
            desk = request.getfixturevalue("desk")(RuntimeStore(tmp_path / "store"))
            root = with_toybox(desk, tools)
            yield Device(desk.hosts[0], root / PHONE_BASE.relative_to("/"), source)
        elif kind == "windows":
            pc = stack.enter_context(a_pc(tmp_path / "pc"))
            base = tmp_path / "base"
            yield Device(pc.host(base_dir=str(base)), base, source)
        else:
            yield board(stack, tmp_path, kind, source)


def with_toybox(desk: Desk, tools: str) -> Path:
    """The phone's root as this machine sees it, with that toybox in it."""
    root = Path(f"/proc/{desk.lab.phones[0].pid}/root")
    new = root / "system/bin/toybox.new"
    shutil.copy(program(tools), new)
    new.chmod(0o755)
    new.rename(new.with_name("toybox"))
    said = subprocess.run([str(program(tools))], capture_output=True, text=True, check=True).stdout
    for one in new.parent.iterdir():
        if one.is_symlink() and one.readlink() == Path("toybox") and one.name not in said.split():
            one.unlink()
    return root


def board(stack: ExitStack, folder: Path, kind: str, source: Path) -> Device:
    """A real sshd; `python` sees this machine's own PATH, the others only their tools."""
    (folder / "board").mkdir()
    server = Sshd(folder / "board")
    pairs = [f"FLEET_LEASE_DIR={server.leases}"]
    if kind != "python":
        shell = "busybox" if kind == "busybox" else "dash"
        pairs.append(f"PATH={toolset(kind, folder / 'tools', shell)}")
    server.start("SetEnv=" + " ".join(f'"{one}"' for one in pairs))
    stack.callback(server.stop)
    base = folder / "base"
    return Device(server.host(base_dir=str(base)), base, source)


KINDS = ("coreutils", "busybox", "python", "windows", *(f"phone:{one}" for one in TOYBOXES))


@pytest.mark.parametrize("device", KINDS, indirect=True)
def test_the_life_of_releases(device: Device) -> None:
    ids = []
    for text in ("one", "two", "three"):
        done = device.push(text)
        assert done.outcome == "changed"
        assert device.live == text
        ids.append(device.current)
    assert len(set(ids)) == 3
    assert device.staged() == set(ids[1:]), "the oldest release is pruned"
    assert len(device.names("store")) == 3, "and what only it had"
    again = device.push("three")
    assert (again.outcome, again.bytes_sent) == ("unchanged", 0)
    assert device.roll_back().outcome == "changed"
    assert (device.current, device.live) == (ids[1], "two")
    (seen,) = status([device.host], device.events.append, parallel=1)
    (first,) = seen.answer.deployed
    assert (first.id, first.state) == (ids[1], "installed")
    device.push("four")
    assert device.live == "four"
    assert device.names("current") == ["tiny"], "nothing is left beside it"


KILLER = """#!/system/bin/sh
case $* in *{word}*) {before} ;; esac
/system/bin/toybox {tool} "$@"; rc=$?
case $* in *{word}*) {after} ;; esac
exit $rc
"""
KILL = "kill -KILL $PPID"


@pytest.mark.parametrize("device", [f"phone:{one}" for one in TOYBOXES], indirect=True)
@pytest.mark.parametrize(
    ("killer", "live"),
    [
        ({"tool": "ln", "word": "/current/.tiny", "before": KILL, "after": "true"}, "one"),
        ({"tool": "ln", "word": "/current/.tiny", "before": "true", "after": KILL}, "one"),
        ({"tool": "sync", "word": "/current", "before": KILL, "after": "true"}, "two"),
    ],
    ids=["before-the-link", "before-the-rename", "before-the-history"],
)
def test_the_shell_is_killed_in_the_switch(
    device: Device, killer: dict[str, str], live: str
) -> None:
    device.push("one")
    first = device.current
    there = device.base.parents[3] / "system/bin" / killer["tool"]
    there.unlink()
    there.write_text(KILLER.format(**killer))
    there.chmod(0o755)
    done = device.try_to_push("two")
    assert done.error is not None
    assert device.live == live
    there.unlink()
    there.symlink_to("toybox")
    device.push("two")
    assert device.live == "two"
    assert device.names("current") == ["tiny"]
    device.roll_back()
    assert (device.current, device.live) == (first, "one")


@pytest.mark.parametrize("device", [f"phone:{one}" for one in TOYBOXES], indirect=True)
def test_the_doctor_tries_the_rename(device: Device) -> None:
    checks = {one.id: one for one in diagnosis(device).checks}
    assert (checks["rename"].status, checks["rename"].facts) == (OK, {"disk.rename": "yes"})
    assert not list(device.base.parent.glob(".fleet-*")), "what was tried is gone"


@pytest.mark.parametrize("device", ["phone:toybox-trixie"], indirect=True)
def test_a_device_that_cannot_is_named_before_a_byte_is_sent(device: Device) -> None:
    """Its shell, mv and ln are those of busybox 1.30."""
    device.push("one")
    first = device.current
    system = device.base.parents[3] / "system/bin"
    for tool in ("sh", "mv", "ln"):
        (system / tool).unlink()
        shutil.copy(program("busybox-bullseye"), system / tool)
    done = device.try_to_push("two")
    assert done.error is not None
    assert "mv: invalid option -- 'T'" in done.error.message
    assert "fleet doctor" in done.error.hint
    assert (device.current, device.live, done.bytes_sent) == (first, "one", 0)
    found = diagnosis(device)
    assert found.verdict == PROBLEM
    assert found.causes[0].cause.id == "no-atomic-rename"
    (check,) = (one for one in found.checks if one.id == "rename")
    assert "no tool here puts a link in the place of another" in check.output
    assert device.current == first
    assert not list(device.base.parent.glob(".fleet-*"))


def diagnosis(device: Device) -> Diagnosis:
    (found,) = examine([device.host], device.events.append, Round(session=False))
    return found
