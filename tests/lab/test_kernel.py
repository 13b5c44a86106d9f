"""Boards with a kernel of their own: systemd, reboot, and power cuts that lose what was not synced.

User-mode Linux: a process of this machine, without a DSP (emulated). `power_cycle` is SIGKILL of
the kernel: what it had not written to its disk is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from fleet.engine.deploy.apply import apply_system, wait_for_reboot
from fleet.engine.deploy.switch import apply_plan
from fleet.engine.lease.lease import Lease
from fleet.engine.session import Session
from fleet.engine.states import ask_state
from fleet.engine.system.undo import UndoLog, undo
from fleet.facts.gather import gather
from fleet.lab import Lab, arm64, kinds, rootfs
from fleet.lab.kernel import can_run_kernel
from fleet.model.command import Command
from fleet.model.deadline import Deadline
from fleet.model.errors import FleetError, InputError, LeaseHeldError
from fleet.model.events import Event, Progress
from fleet.model.files import FileRef, sha256_file
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest
from fleet.model.plan import Action, DevicePlan, SendBlobs
from fleet.model.system import SystemSpec, WantedUnit
from fleet.ops.release import actions_for
from fleet.profiles.runs import RunStore
from tests.lab.uml import needs_kernel_boards
from tests.provision.conftest import planned

ROOT = Path(__file__).parents[2]
NAME = "lab001"
GUEST_PYTHON = (3, 11)
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
UNIT = "[Service]\nExecStart=/usr/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
# The names are on the disk then, without the bytes of what nobody synced (ext4, data=ordered).
LAZY = "echo 0 > /proc/sys/vm/dirty_writeback_centisecs"  # until the boot: only on demand
COMMIT = "dd if=/dev/zero of=/var/tmp/commit$$ bs=1 count=1 conv=fsync status=none"
# Instead of the sync of `current`: the rename of the link is on the disk, as after any commit.
NO_SYNC = f"""#!/bin/sh
case $2 in */current) {COMMIT} ;; *) exec /usr/bin/sync "$@" ;; esac
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    needs_kernel_boards()
    root = tmp_path_factory.mktemp("kernel")
    with Lab.up(root, count=1, kind="kernel", base_port=0) as lab:
        yield lab


@pytest.fixture
def host(lab: Lab) -> Host:
    board = lab.board(NAME)
    return Host(
        NAME,
        address="127.0.0.1",
        port=board.port,
        user=board.user,
        identity_files=(lab.folder.identity_file,),
        known_hosts=lab.folder.known_hosts,
        connect_timeout=60.0,
    )


def said(lab: Lab, *scripts: str) -> str:
    done = lab.exec(NAME, ["sh", "-ec", "; ".join(scripts)])
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def release(folder: Path, name: str, large: int = 0) -> Manifest:
    """Eight small libraries, and one of `large` bytes that cannot be compressed."""
    texts = [name.encode() * 40_000 + bytes([number]) for number in range(8)]
    texts += [random.Random(name).randbytes(large)] if large else []
    refs = []
    for number, text in enumerate(texts):
        path = folder / f"{name}-{number}"
        path.write_bytes(text)
        refs.append(FileRef(path, f"lib/{number}", len(text), sha256_file(path)))
    return Manifest("app", tuple(refs), origin={"name": name})


def bring(
    host: Host,
    app: Manifest,
    hear: Sequence[threading.Event] = (),
    steps: type[Action] = Action,
) -> None:
    """Send, stage, switch. `hear` is set when something of it is on the way."""

    def emit(event: Event) -> None:
        if isinstance(event, Progress) and event.done:
            for heard in hear:
                heard.set()

    session = Session(host, emit)
    try:
        session.open()
        facts = gather(session.transport, host, Deadline(60))
        wanted = actions_for(app, ask_state(session, facts, app), 2)
        actions = tuple(action for action in wanted if isinstance(action, steps))
        apply_plan(session, DevicePlan(host, facts, "", app, actions=actions), "run")
    finally:
        session.close()


@contextlib.contextmanager
def opened(host: Host) -> Iterator[Session]:
    session = Session(host, lambda _: None)
    session.open()
    try:
        yield session
    finally:
        session.close()


def background(host: Host, app: Manifest, *hear: threading.Event) -> threading.Thread:
    def push() -> None:
        with contextlib.suppress(FleetError):
            bring(host, app, hear)

    thread = threading.Thread(target=push, daemon=True)
    thread.start()
    return thread


def whole(lab: Lab, *apps: Manifest) -> Manifest:
    """The live one of these: its files, what fleet keeps of it and the store are whole."""
    home = lab.board(NAME).home
    live = said(lab, f"readlink {home}/fleet/current/app").rpartition("/")[2]
    (app,) = (app for app in apps if app.id == live)
    sums = said(lab, f"cd {home}/fleet/releases/app/{live}", "sha256sum lib/*").splitlines()
    assert {line.split()[1]: line.split()[0] for line in sums} == {
        item.name: item.sha256 for item in app.files
    }
    kept = f"{home}/fleet/meta/app/{live}"
    assert said(lab, f"cat {kept}/.installed") == live
    assert json.loads(said(lab, f"cat {kept}/manifest.json"))
    store(lab)
    return app


def store(lab: Lab) -> set[str]:
    """The blobs that have a name: each is what it is called."""
    folder = f"{lab.board(NAME).home}/fleet/store"
    sums = said(lab, f"cd {folder}", "ls | grep -vF . | xargs -r sha256sum").splitlines()
    assert all(line.split()[0] == line.split()[1] for line in sums), "a name without its bytes"
    return {line.split()[1] for line in sums}


def test_it_says_what_it_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(
        InputError, match="of the kind kernel cannot run on this computer: their network"
    ) as error:
        Lab.up(tmp_path / "lab", count=1, kind="kernel", base_port=0)
    assert error.value.exit_code == 2


AMX, PLAIN = "flags\t\t: fpu avx512f amx_bf16 amx_tile amx_int8\n", "flags\t\t: fpu avx2\n"


@pytest.fixture
def uml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """A user-mode Linux of a version, on a CPU, with a tap device and root."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    for name in ("linux.uml", "unshare"):
        (tmp_path / name).write_text('#!/bin/sh\n[ "$1" = --net ] || cat "$0.version"\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("fleet.lab.kernel._CPU", tmp_path / "cpuinfo")

    def made(version: str, flags: str) -> None:
        (tmp_path / "linux.uml.version").write_text(f"{version}\n")
        (tmp_path / "cpuinfo").write_text(flags)

    return made


def test_a_kernel_that_does_not_start_here_is_named(
    uml: Callable[[str, str], None], tmp_path: Path
) -> None:
    """That of Debian unstable wants a newer C library than Debian 12 has."""
    uml("", AMX)
    (tmp_path / "linux.uml").write_text("#!/bin/sh\necho 'GLIBC_2.38 not found' >&2; exit 1\n")
    assert can_run_kernel() == "user-mode Linux cannot start: GLIBC_2.38 not found"


@pytest.mark.parametrize(
    ("version", "flags", "why"),
    [
        ("6.1.176", AMX, "user-mode Linux 6.1.176 "), ("6.12.5", AMX, "6.13 or newer does not"),
        ("6.13", AMX, ""), ("7.2", AMX, ""), ("6.1.176", PLAIN, ""),
    ],
)  # fmt: skip
def test_a_kernel_that_panics_on_this_cpu_is_named_before_it_boots(
    uml: Callable[[str, str], None], tmp_path: Path, version: str, flags: str, why: str
) -> None:
    uml(version, flags)
    assert why in can_run_kernel()
    if not why:
        assert can_run_kernel() == ""
        return
    with pytest.raises(InputError, match="panics on a CPU with AMX") as error:
        Lab.up(tmp_path / "lab", count=1, kind="kernel", base_port=0)
    assert error.value.exit_code == 2
    assert "--kernel" not in error.value.hint


@pytest.mark.parametrize(
    ("kind", "program", "package"),
    [("kernel", "linux.uml", "user-mode-linux"), ("arm64", arm64.QEMU, "qemu-user-static")],
)
def test_a_program_that_is_not_installed_is_named_with_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, program: str, package: str
) -> None:
    why_not = kinds._OWN_GROUND[kind]
    monkeypatch.setitem(kinds._OWN_GROUND, kind, (lambda: "", *why_not[1:]))
    monkeypatch.setattr(rootfs, "find", lambda name: None if name == program else f"/bin/{name}")
    with pytest.raises(InputError, match=f"not installed: {package}") as error:
        Lab.up(tmp_path / "lab", count=1, kind=kind, base_port=0)
    assert error.value.exit_code == 2
    assert package in error.value.hint


@pytest.mark.root
def test_what_is_real_and_what_the_profile_says(lab: Lab) -> None:
    assert said(lab, "cat /proc/1/comm") == "systemd"
    assert said(lab, "systemctl is-system-running --wait; systemctl is-active systemd-udevd") == (
        "running\nactive"
    )
    assert said(lab, "cat /sys/devices/soc0/soc_id") == "676"
    assert said(lab, "stat -c '%a %U:%G' /dev/fastrpc-cdsp") == "660 root:fastrpc"
    assert "emulated: true" in said(lab, "cat /etc/fleet-lab-board")
    lab.fault(NAME, "small-disk")
    assert said(lab, "stat -fc %T /home/ubuntu/fleet") == "tmpfs"
    lab.heal(NAME, "small-disk")


@pytest.mark.slow
@pytest.mark.root
def test_a_reboot_in_the_middle_of_a_push_is_gone_on_with(
    lab: Lab, host: Host, tmp_path: Path
) -> None:
    app = release(tmp_path, "before the reboot", 24 << 20)
    boot, far = said(lab, BOOT_ID), threading.Event()
    push = background(host, app, far)
    assert far.wait(120)
    time.sleep(1.0)
    lab.exec(NAME, ["systemctl", "reboot"])
    end = time.monotonic() + 240
    while (done := lab.exec(NAME, ["sh", "-c", BOOT_ID])).returncode or done.stdout.strip() == boot:
        assert time.monotonic() < end, "it does not come back"
        time.sleep(0.5)
    push.join(240)
    bring(host, app)
    assert whole(lab, app) == app


@pytest.mark.slow
@pytest.mark.root
def test_a_lease_and_a_unit_live_over_a_reboot_and_undo_takes_the_unit_back(
    lab: Lab, host: Host, tmp_path: Path
) -> None:
    said(lab, f"printf '{UNIT}' > /etc/systemd/system/npu.service", "systemctl daemon-reload")
    look = "getent group npu || echo none; systemctl is-enabled npu || true"
    before = said(lab, look)
    root, runs = replace(host, user="root"), RunStore(tmp_path / "runs")
    spec = SystemSpec(groups=("npu",), units=(WantedUnit("npu.service", enabled=True),))
    with opened(root) as session, opened(root) as other:
        with Lease(session, "provision") as lease:
            log = UndoLog(tmp_path / "undo", "run1", NAME)
            apply_system(session, planned(session, spec), log, allow_reboot=False)
            boot = session.boot_id()
            with session.over_reboot():
                lab.exec(NAME, ["systemctl", "reboot"])
                wait_for_reboot(session, boot)
            session.ask(Command(("touch", "/root/mine")), "touch", mutates=True)
            assert lease.ticket is not None
            assert lease.ticket.generation == 1
            other.reopen()
            with pytest.raises(LeaseHeldError), Lease(other, "other"):
                other.ask(Command(("touch", "/root/not")), "touch", mutates=True)
        assert said(lab, look).split()[1:] == ["enabled"]
        with Lease(other, "of somebody who goes"):
            other.ask(Command(("touch", "/root/other")), "touch", mutates=True)
            lab.power_cycle(NAME)
            session.reopen()
            with Lease(session, "next"):
                session.ask(Command(("touch", "/root/next")), "touch", mutates=True)
    (result,) = undo([root], "run1", lambda _: None, parallel=1, runs=runs)
    assert result.error is None, result.error
    assert said(lab, look) == before


@pytest.mark.slow
@pytest.mark.root
def test_a_power_cut_loses_what_was_not_synced(lab: Lab) -> None:
    said(lab, "echo kept > /root/synced", "sync -f /root/synced")
    said(lab, LAZY, "echo lost > /root/unsynced", COMMIT)
    boot = said(lab, BOOT_ID)
    lab.power_cycle(NAME)
    assert said(lab, BOOT_ID) != boot
    assert said(lab, "cat /root/synced /root/unsynced") == "kept"


@pytest.mark.slow
@pytest.mark.root
def test_a_blob_has_its_bytes_where_it_has_its_name(lab: Lab, host: Host, tmp_path: Path) -> None:
    """A blob alone: the sync of a batch, or of a switch, would bring it to the disk too."""
    app = release(tmp_path, "taken", 2 << 20)
    app = structs.replace(app, files=app.files[-1:])
    said(lab, LAZY)
    bring(host, app, steps=SendBlobs)
    said(lab, COMMIT)
    lab.power_cycle(NAME)
    assert app.files[0].sha256 in store(lab)


@pytest.mark.slow
@pytest.mark.root
def test_what_is_switched_to_is_whole_when_the_switch_is(
    lab: Lab, host: Host, tmp_path: Path
) -> None:
    """The cut comes after the rename, before the sync that follows it."""
    old, new = release(tmp_path, "flushed"), release(tmp_path, "switched to")
    bring(host, old)
    said(
        lab,
        LAZY,
        f"cat > /usr/local/bin/sync << 'END'\n{NO_SYNC}END\nchmod 755 /usr/local/bin/sync",
    )
    said(lab, "/usr/bin/sync")
    bring(host, new)
    lab.power_cycle(NAME)
    said(lab, "rm /usr/local/bin/sync")
    assert whole(lab, old, new) == new


@pytest.mark.slow
@pytest.mark.root
def test_a_line_of_the_journal_is_there_after_a_power_cut_of_the_workstation(lab: Lab) -> None:
    """The board is the workstation here; fleet is this tree, seen through hostfs."""
    if sys.version_info[:2] != GUEST_PYTHON:
        pytest.skip("fleet's modules here are not of the Python of the board (3.11)")
    site = next(path for path in sys.path if path.endswith("site-packages"))
    program = (
        "import sys; sys.path[:0] = ['/mnt" + str(ROOT) + "', '/mnt" + site + "']\n"
        "from pathlib import Path\n"
        "from tests.engine.rollout.test_journal import begun\n"
        "begun(Path('/root/runs/r1/journal.jsonl')).write('begin', host='d001', wave='canary')\n"
    )
    said(lab, LAZY, "mount -t hostfs none /mnt", "mkdir -p /root/runs", "sync -f /root/runs")
    done = lab.exec(NAME, ["python3", "-B", "-c", program])
    assert done.returncode == 0, done.stderr
    said(lab, COMMIT)
    lab.power_cycle(NAME)
    lines = said(lab, "cat /root/runs/r1/journal.jsonl").splitlines()
    assert [json.loads(line)["line"] for line in lines] == ["run", "begin"]


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.parametrize("cuts", [2, 50])
def test_after_a_power_cut_at_any_moment_the_old_or_the_new_release_is_whole(
    lab: Lab, host: Host, tmp_path: Path, cuts: int
) -> None:
    chance = random.Random(24)
    live = release(tmp_path, "first", 2 << 20)
    begun = time.monotonic()
    bring(host, live)
    whole_push = time.monotonic() - begun
    seen = set()
    for number in range(cuts):
        new = release(tmp_path, f"cut {number}", 2 << 20)
        push = background(host, new)
        time.sleep(chance.uniform(0, 1.2 * whole_push))
        lab.power_cycle(NAME)
        push.join(60)
        found = whole(lab, live, new)
        seen.add(found == new)
        bring(host, new)
        live = whole(lab, new)
    assert cuts < 50 or seen == {True, False}, "the cuts are on both sides of the switch"


@pytest.mark.slow
@pytest.mark.root
def test_down_leaves_nothing(tmp_path: Path) -> None:
    needs_kernel_boards()
    mounts = Path("/proc/self/mounts").read_text()
    with Lab.up(tmp_path / "lab", count=1, kind="kernel", base_port=0) as lab:
        root = str(lab.folder.root)
    there = subprocess.run(["pgrep", "-f", root], capture_output=True, text=True, check=False)
    assert there.stdout == ""
    assert Path("/proc/self/mounts").read_text() == mounts
    assert not (tmp_path / "lab" / "boards").exists()
