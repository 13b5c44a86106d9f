"""A disk that is full, has no inode left, or turns read-only: before each step of a deploy."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from fleet.engine.everyday.get import Fetching, fetch_everywhere
from fleet.facts.gather import gather
from fleet.model.deadline import Deadline
from fleet.model.errors import DiskFullError, FleetError, WorkstationError
from fleet.model.events import Event, Progress, StepStarted, Warned
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest
from fleet.transport import transport_for
from tests.transport.sshd import Sshd

from .app import app_of, deploy, live, small
from .conftest import remount

Mount = Callable[..., Path]
STEPS = ("send", "stage", "health", "switch", "prune")
FAST = {("send", "full"), ("stage", "read-only"), ("switch", "full")}
REASONS = {"full": "No space left on device", "read-only": "Read-only file system"}


def fill(place: Path) -> None:
    with (place / "filler").open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(1 << 12))
        except OSError:
            pass
    for number in range(100_000):
        try:
            (place / f"empty{number}").touch()
        except OSError:
            return


def unfill(place: Path) -> None:
    for path in (place / "filler", *place.glob("empty*")):
        path.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("step", "fault"),
    [
        pytest.param(step, fault, marks=() if (step, fault) in FAST else pytest.mark.slow)
        for step in STEPS
        for fault in REASONS
    ],
)
def test_before_each_step(
    server: Sshd, tmp_path: Path, mounted: Mount, step: str, fault: str
) -> None:
    """Old or new and whole, the reason is named, and the next deploy goes on from there.

    The steps go over in one stream: when the last is told, the switch may still be on its way.
    """
    place = mounted("size=12m,nr_inodes=400")
    base = place / "base"
    host = server.host(base_dir=str(base))
    old, new = small(tmp_path / "old", "o"), small(tmp_path / "new", "n")
    deploy(host, old)
    heard: list[str] = []
    failed = False

    def strike(event: Event) -> None:
        if isinstance(event, Warned):
            heard.append(event.text)
        if isinstance(event, StepStarted) and event.step == step:
            if fault == "full":
                fill(place)
            else:
                remount(place, "ro")

    try:
        deploy(host, new, strike)
    except FleetError as error:
        failed = True
        heard.append(f"{error.message} {error.hint}")
    if fault == "full":
        unfill(place)
    else:
        remount(place, "rw")
    assert failed or step == "prune"
    assert not failed or any(REASONS[fault] in text for text in heard), heard
    assert live(base, old, new) is (old if failed else new)
    deploy(host, new)
    assert live(base, new) is new
    seen: list[str] = []
    deploy(host, new, lambda event: seen.append(type(event).__name__))
    assert "StepStarted" not in seen, "the second deploy has nothing to do"


def test_a_disk_that_is_too_small_keeps_what_arrived(
    server: Sshd, tmp_path: Path, mounted: Mount
) -> None:
    place = mounted("size=3m")
    host = server.host(base_dir=str(place / "base"))
    app = app_of(
        tmp_path / "src", {"a": os.urandom(500_000), "b": os.urandom(500_001), "z": bytes(4 << 20)}
    )
    with pytest.raises(DiskFullError, match="No space left on device") as caught:
        deploy(host, app)
    assert "were free" in caught.value.message
    kept = {path.name for path in (place / "base" / "store").iterdir()}
    assert {item.sha256 for item in app.files[:2]} <= kept
    remount(place, "size=20m")
    session = deploy(host, app)
    assert session.payload_bytes < 4 << 20, "what had arrived was sent again"
    assert live(place / "base", app) is app


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=pytest.mark.slow)])
def test_no_inode_left(server: Sshd, tmp_path: Path, mounted: Mount, count: int) -> None:
    """Bytes are there in plenty, inodes are not."""
    place = mounted("size=20m,nr_inodes=40")
    base = place / "base"
    host = server.host(base_dir=str(base))
    old = app_of(tmp_path / "old", {"f": b"old"})
    deploy(host, old)
    new = app_of(tmp_path / "new", {f"d/{n}": b"%d" % n for n in range(count)})
    with pytest.raises(FleetError) as caught:
        deploy(host, new)
    assert "No space left on device" in caught.value.message
    assert "inodes were free" in caught.value.message
    assert "df -i" in caught.value.hint
    assert live(base, old, new) is old
    remount(place, "nr_inodes=4000")
    deploy(host, new)
    assert live(base, new) is new


def test_a_disk_without_rights_is_said(server: Sshd, tmp_path: Path, mounted: Mount) -> None:
    place = mounted("size=4m")
    (place / "base").write_text("a file stands where the folder should be")
    app: Manifest = app_of(tmp_path / "src", {"f": b"x"})
    with pytest.raises(FleetError) as caught:
        deploy(server.host(base_dir=str(place / "base")), app)
    assert str(place / "base") in caught.value.message


def test_spares_give_way_where_the_disk_is_full(
    server: Sshd, tmp_path: Path, mounted: Mount
) -> None:
    """They count as room, and go before a byte of what lacks it is written."""
    place = mounted("size=150m")
    base = place / "base"
    host = server.host(base_dir=str(base))
    apps = [app_of(tmp_path / f"{n}", {"f": os.urandom(16 << 20)}) for n in range(3)]
    for app in apps:
        deploy(host, app)
    (spare,) = (base / "store").glob("*.spare")
    (place / "other").write_bytes(bytes(70 << 20))
    large = app_of(tmp_path / "large", {"f": os.urandom(30 << 20)})
    free = os.statvfs(place)
    with closing(transport_for(host)) as link:
        link.open(Deadline(30))
        room = gather(link, host, Deadline(30)).disk.room_bytes
    assert room is not None
    assert abs(room - (free.f_bavail * free.f_frsize + spare.stat().st_size)) < 1 << 16
    deploy(host, large)
    assert live(base, large) is large
    assert not list((base / "store").glob("*.spare"))


def test_a_full_disk_of_this_workstation_ends_a_get_at_once(tmp_path: Path, mounted: Mount) -> None:
    """Between the look at the free space and the write, somebody else took it."""
    disk, there = mounted("size=20m"), tmp_path / "there"
    there.mkdir()
    for name in ("a", "b"):
        (there / name).write_bytes(bytes(9 << 20))

    def listener(event: Event) -> None:
        if isinstance(event, Progress) and not (disk / "filler").exists():
            fill(disk)

    job = Fetching(str(there), disk / "got")
    host = Host("here", transport="local")
    (done,) = fetch_everywhere(job, [host], listener, parallel=1)
    assert isinstance(done.error, WorkstationError), done.error
    assert "No space left on device" in done.error.message
    assert "FLEET_HOME" not in done.error.hint
    assert list((disk / "got" / "there").iterdir()) == []
    assert done.answer.missing == {"a": "did not arrive", "b": "did not arrive"}
