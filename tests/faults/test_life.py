"""Devices that reboot, vanish or talk without end, beside others that do their work."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.engine.lease.lease import Lease
from fleet.engine.pool import DeviceResult, PoolOptions, on_every_device
from fleet.engine.session import Session
from fleet.engine.transfer import upload as uploading
from fleet.lab import Lab
from fleet.model.command import Command, script
from fleet.model.errors import HealthError
from fleet.model.events import DeviceDone, Event, StepStarted, Warned
from fleet.model.inventory import Host
from tests.chaos import Chaos, Fault
from tests.transport.sshd import Sshd, running

from .app import deploy, deploy_in, live, small
from .watch import Watch

STUCK_SECONDS = 180.0


def test_a_reboot_in_the_middle_of_a_push_is_noticed_and_the_push_goes_on(
    lab: Lab, board: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploading, "WAIT_SECONDS", 0.05)
    app = small(tmp_path / "src", "n")
    events: list[Event] = []
    port = lab.board("lab001").port
    with Chaos(port, [Fault(cut=300_000, how="hole")]) as link:
        cycled = threading.Event()

        def cycle() -> None:
            while not link.cuts:
                cycled.wait(0.005)
            lab.power_cycle("lab001")
            link.plug_into(lab.board("lab001").port)
            cycled.set()

        thread = threading.Thread(target=cycle, daemon=True)
        thread.start()
        host = link.through(board, tmp_path)
        session = deploy(host, app, events.append)
        thread.join(30)
    assert cycled.is_set()
    assert session.rebooted
    assert any("rebooted" in one.text for one in events if isinstance(one, Warned))
    again = Session(board, events.append)
    again.open()
    assert not deploy_in(again, app), "all of it arrived"
    again.close()


@pytest.mark.parametrize("step", ["a run", "a health probe"])
def test_a_reboot_during_a_run_is_called_so_and_gives_no_result(
    lab: Lab, board: Host, tmp_path: Path, step: str
) -> None:
    """The program reboots its board; what it said before does not count."""
    app = small(tmp_path / "old", "o")
    deploy(board, app)
    hanging = ("sh", "-c", 'echo "begun"; sleep 60')
    new = small(tmp_path / "new", "n", health=hanging, timeout=60)
    returned = []

    def strike(event: Event) -> None:
        if isinstance(event, StepStarted) and event.step == "health":
            threading.Timer(1.0, lab.power_cycle, ("lab001",)).start()

    def work(session: Session, result: DeviceResult[Any]) -> None:
        if step == "a run":
            session.boot = session.ask(Command(("cat", "/proc/sys/kernel/random/boot_id")), "").text
            session.boot = session.boot.strip()
            threading.Timer(1.0, lab.power_cycle, ("lab001",)).start()
            returned.append(session.run(Command(("sleep", "60")), "run"))
        else:
            deploy_in(session, new)
        result.outcome = "changed"

    (result,) = on_every_device([board], work, strike, PoolOptions(parallel=1))
    assert result.outcome == "unreachable"
    assert "rebooted" in result.text, result.text
    assert not returned
    if step != "a run":
        current = lab.exec("lab001", ["sh", "-c", "readlink /home/*/fleet/current/app"])
        assert current.stdout.strip().endswith(app.id)


@pytest.mark.parametrize(
    "probe",
    [
        (("false",), 20, "exit status 1"),
        (("sh", "-c", "sleep 60"), 1, "exit status 124"),
        (("sh", "-c", "kill -SEGV $$"), 20, "exit status"),
        (("./not-there",), 20, "exit status"),
    ],
    ids=["fails", "hangs", "crashes", "is not there"],
)
def test_a_release_whose_probe_does_not_end_well_is_not_switched_to(
    host: Host, base: Path, tmp_path: Path, probe: tuple[tuple[str, ...], float, str]
) -> None:
    argv, timeout, why = probe
    old = small(tmp_path / "old", "o")
    new = small(tmp_path / "new", "n", health=argv, timeout=timeout)
    deploy(host, old)
    for _ in range(2):  # a failed install is tried again, never taken for done
        with pytest.raises(HealthError, match=why):
            deploy(host, new)
        assert live(base, old, new) is old
        assert not (base / "meta" / "app" / new.id / ".installed").exists()


def test_one_black_hole_of_twenty_ends_by_its_own_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nineteen are done before it is given up, and it is called unreachable.

    With the constants that ship; time passes for the lost one only once the others are done, or
    when they have obviously waited for it.
    """
    watch = Watch()
    watch.plug_in(monkeypatch)
    app = small(tmp_path / "src", "n")
    hole = Fault(cut=0, cut_back=0, how="hole")
    done: list[str] = []
    at_it: set[threading.Thread] = set()
    stuck = time.monotonic() + STUCK_SECONDS

    def hear(event: Event) -> None:
        if isinstance(event, DeviceDone):
            done.append(event.host)

    with (
        running(tmp_path / "sshd") as server,
        Chaos(server.port, [Fault(cut=200_000, how="hole")], then=hole) as link,
    ):
        hosts = [
            server.host(
                name=f"board{n:02}", base_dir=str(tmp_path / f"base{n:02}"), connect_timeout=120.0
            )
            for n in range(20)
        ]
        lost = link.through(hosts[0], tmp_path)

        def work(session: Session, result: DeviceResult[Any]) -> None:
            if session.host.port != link.port:
                session.ask(Command(("mkdir", "-p", session.host.base_dir or "")), "write")
                result.outcome = "changed"
                return
            session.host = replace(lost, connect_timeout=0.5)  # what never answers
            at_it.add(threading.current_thread())
            with Lease(session, "push app") as lease:
                lease.take()
                at_it.add(lease._thread)
                uploading_only(session, app)

        watch.start(
            lambda: len(done) >= 19 or time.monotonic() > stuck,
            lambda: {one for one in at_it if one.is_alive()},
        )
        results = on_every_device([lost, *hosts[1:]], work, hear, PoolOptions(parallel=20))
    assert [one.outcome for one in results] == ["unreachable"] + ["changed"] * 19, results
    assert done[-1] == lost.name, "the others did not wait for it"
    assert all((tmp_path / f"base{n:02}").is_dir() for n in range(1, 20))


def uploading_only(session: Session, app: object) -> None:
    from fleet.engine.states import facts_of
    from fleet.engine.transfer.upload import Upload
    from fleet.model.manifest import Manifest
    from fleet.model.plan import Blob

    assert isinstance(app, Manifest)
    Upload(session, facts_of(session), app).send([Blob(one) for one in app.blobs.values()])


TALK = "while [ ! -e \"$1\" ]; do head -c 1000000 /dev/zero | tr '\\\\000' 'x'; done"


def memory() -> int:
    """Resident bytes of this process."""
    text = Path("/proc/self/statm").read_text().split()[1]
    return int(text) * 4096


def test_a_device_that_talks_without_end_starves_nobody_and_fills_no_memory(
    server: Sshd, tmp_path: Path
) -> None:
    """It talks until the quiet ones are done, and for at least 200 MB: nothing is timed."""
    stop = tmp_path / "stop"
    quiet_done = threading.Semaphore(0)
    heard = [0]
    peak = [0]
    before = memory()
    hosts = [server.host(name=name) for name in ("talks", "quiet1", "quiet2", "quiet3")]

    def take(chunk: bytes) -> None:
        heard[0] += len(chunk)
        peak[0] = max(peak[0], memory())
        if heard[0] >= 200_000_000 and all_quiet():
            stop.touch()

    def all_quiet() -> bool:
        return len(finished) == 3

    finished: list[str] = []

    def work(session: Session, result: DeviceResult[Any]) -> None:
        if session.host.name == "talks":
            session.run(script(TALK, str(stop)), "talk", seconds=300, on_stdout=take)
        else:
            for turn in range(5):
                said = session.ask(Command(("echo", f"{session.host.name} {turn}")), "say")
                assert said.text == f"{session.host.name} {turn}\n", "garbled"
            finished.append(session.host.name)
        result.outcome = "ok"
        quiet_done.release()

    results = on_every_device(hosts, work, lambda _: None, PoolOptions(parallel=4))
    assert [one.outcome for one in results] == ["ok"] * 4, results[0].error
    assert heard[0] >= 200_000_000
    assert peak[0] - before < 100_000_000, "its output was kept"


def test_a_probe_that_talks_without_end_is_heard_in_part(
    host: Host, base: Path, tmp_path: Path
) -> None:
    talks = (
        "sh",
        "-c",
        "head -c 20000000 /dev/zero | tr '\\000' 'x'; echo; echo error: here; exit 3",
    )
    before = memory()
    with pytest.raises(HealthError, match="exit status 3") as caught:
        deploy(host, small(tmp_path / "src", "n", health=talks, timeout=120))
    assert memory() - before < 40_000_000
    assert len(caught.value.message) < 10_000
