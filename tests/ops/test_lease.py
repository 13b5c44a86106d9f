"""Leases on real files, the same by the scripts in each POSIX shell and by the Python program."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from fleet.device.shell import device_script
from fleet.model.command import Command, script
from fleet.model.errors import DeviceError
from fleet.model.lease import RESERVE, WRITE, Ticket, human_seconds
from fleet.ops import lease
from fleet.ops.lease import LeaseAnswer
from fleet.transport.quote import render
from tests import needs
from tests.transport.windows.board import PcLeaseBoard

from .board import LeaseBoard

DROPBEAR_BYTES = 9000  # its longest command; see fleet/facts/gather.py
SHELLS = ("dash", "bash", "busybox", "mksh")
IN_A_SHELL = pytest.mark.parametrize("board", SHELLS, indirect=True)
HOSTILE = [
    "ann@desk", "", "-rf", "--", "a b  c", "it's", '"', "$(touch pwned)", "`id`", "; exit 9",
    "two\nlines", "held write 9", "end", "\t", "\x1b[31mred\x07", "\\n", "%s%n", "é 日本",
    "=", "*", "~",
]  # fmt: skip


@pytest.fixture(params=(*SHELLS, "python"))
def board(request: pytest.FixtureRequest, tmp_path: Path) -> LeaseBoard:
    python = request.param == "python"
    return PcLeaseBoard(tmp_path, "dash") if python else LeaseBoard(tmp_path, request.param)


@pytest.fixture
def dash(tmp_path: Path) -> LeaseBoard:
    return LeaseBoard(tmp_path, "dash")


def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def uptime() -> int:
    return int(float(Path("/proc/uptime").read_text().split()[0]))


def test_one_writer(board: LeaseBoard) -> None:
    assert board.who() == []
    assert not board.folder.exists(), "who only reads"
    first = board.take()
    assert (first.got, first.place, first.held) == (1, str(board.folder), [])
    assert board.folder.stat().st_mode & 0o7777 == 0o1777
    ticket = board.ticket(first)
    (holder,) = board.who()
    assert (holder.owner, holder.reason, holder.run_id) == ("ann@desk", "deploy app", "run-1")
    assert (holder.kind, holder.generation, holder.busy) == (WRITE, 1, False)
    assert 58 <= holder.left <= 61
    assert holder.age is not None
    for who in ("bob@desk", "ann@desk"):
        second = board.take(who)
        assert second.got is None, "another run of the same person is another writer"
        (held,) = second.held
        # A second may pass between two looks.
        assert replace(held, left=holder.left, age=holder.age) == holder
    assert not board.ask(lease.free_command(replace(ticket, token="0" * 32))).freed
    assert board.ask(lease.free_command(replace(ticket, token=holder.token))).freed
    assert board.who() == []
    assert board.take("bob@desk").got == 2


def test_generations_rise_and_the_highest_stays(board: LeaseBoard) -> None:
    for number in range(1, 13):
        answer = board.take()
        assert answer.got == number
        assert board.ask(lease.free_command(board.ticket(answer))).freed
    assert board.generations() == ["write.11", "write.12"]


@IN_A_SHELL
def test_the_guard_runs_the_step_as_it_is(board: LeaseBoard) -> None:
    ticket = board.ticket(board.take())
    show = script(
        'printf "%s|" "$@" "$FLEET_X" "$(umask)"; cat; echo err >&2; exit 7', "a b", "$(x)"
    )
    done = board.do(lease.guard(ticket).then(show), b"input", {"FLEET_X": "value"})
    mask = subprocess.run([*board.shell, "-c", "umask"], capture_output=True, text=True, check=True)
    assert done.returncode == 7
    assert done.stdout.decode() == f"a b|$(x)|value|{mask.stdout.strip()}|input"
    assert done.stderr == b"err\n"
    assert board.do(lease.guard(ticket).then(Command(("no-such-program",)))).returncode == 127
    kept = lease.guard(ticket).then(Command(("true",), {"A": "b"}, "/somewhere", ("C",)))
    assert (kept.env, kept.cwd, kept.unset) == ({"A": "b"}, "/somewhere", ("C",))


def test_the_guard_gives_the_lease_back_behind_a_step_that_succeeds(board: LeaseBoard) -> None:
    ticket = board.ticket(board.take())
    guarded = lease.guard(ticket, "60f")
    failed = board.do(guarded.then(board.failing))
    assert failed.returncode
    assert not lease.freed(ticket, failed.stderr.decode())
    assert [holder.token for holder in board.ask(lease.who_command()).held] == [ticket.token]
    done = board.do(guarded.then(board.step))
    assert (done.returncode, done.stdout.decode().strip()) == (0, boot())
    assert lease.freed(ticket, done.stderr.decode())
    assert not lease.freed(replace(ticket, token="another"), done.stderr.decode())
    assert board.ask(lease.who_command()).held == []
    assert lost(board, ticket) == lease.GIVEN_BACK


def test_the_guard_gives_back_through_no_link(board: LeaseBoard, tmp_path: Path) -> None:
    ticket = board.ticket(board.take())
    aside = tmp_path / "aside"
    (Path(ticket.folder) / f"write.{ticket.generation}" / "released").symlink_to(aside)
    done = board.do(lease.guard(ticket, "60f").then(board.step))
    assert lease.freed(ticket, done.stderr.decode())
    assert not aside.exists()
    assert board.ask(lease.who_command()).held == []


def lost(board: LeaseBoard, ticket: Ticket, command: Command | None = None) -> str:
    """Why the guard refuses; and the step, which would say something, did not run."""
    done = board.do(command or lease.guard(ticket).then(board.step))
    assert done.returncode == lease.LOST_STATUS, done
    assert done.stdout == b""
    why = lease.lost_words(ticket, done.returncode, done.stderr.decode())
    assert why, done.stderr
    return why


def test_who_was_broken_loses_and_learns_by_whom(board: LeaseBoard) -> None:
    ticket = board.ticket(board.take())
    assert board.drop("bob@desk").dropped == []
    assert len(board.drop("bob@desk").held) == 1
    assert [holder.owner for holder in board.drop("bob@desk", force=True).dropped] == ["ann@desk"]
    assert lost(board, ticket) == "the board was taken by bob@desk (because)"
    assert board.who() == []
    assert board.take("carl@desk").got == 3
    assert lost(board, ticket) == "the board was taken by carl@desk (deploy app)"
    assert lost(board, ticket, lease.guard(ticket, "keep"))
    assert lost(board, ticket, lease.guard(ticket, "revive"))


def test_what_was_given_back_or_removed_is_lost(board: LeaseBoard) -> None:
    ticket = board.ticket(board.take())
    board.ask(lease.free_command(ticket))
    assert lost(board, ticket) == "the lease was released"
    shutil.rmtree(board.folder)
    assert lost(board, ticket) == "the lease folder on the board was deleted"
    board.take(token="f" * 32)
    assert "taken by" in lost(board, ticket), "the same number, another token"


def test_an_end_in_time_and_a_new_holder(board: LeaseBoard) -> None:
    ticket = board.ticket(board.take(ttl=5), ttl=5)
    board.put("write.1/keep", f"{boot()} {uptime()} 5\n")
    assert board.who() == []
    assert lost(board, ticket) == "fleet could not renew the lease within 5 s"
    assert board.do(lease.guard(ticket, "revive")).returncode == 0, "nobody took it"
    assert board.do(lease.guard(ticket).then(board.step)).returncode == 0
    board.put("write.1/keep", f"{boot()} {uptime()} 5\n")
    board.put("write.1/step", f"{boot()} {uptime()} idle 0\n")
    assert board.take("bob@desk").got == 2
    assert lost(board, ticket).startswith(
        "fleet could not renew the lease within 5 s, and the board was taken by bob"
    )


def test_a_step_holds_the_lease_while_it_runs(board: LeaseBoard) -> None:
    ticket = board.ticket(board.take())
    done = board.do(lease.guard(ticket, 500).then(lease.who_command()))
    (holder,) = lease.parse_lease(done.stdout.decode(), "board").held
    assert holder.busy
    assert 490 < holder.left <= 501
    (after,) = board.who()
    assert not after.busy
    assert after.left <= 61, "the step has ended, and with it its time"


@IN_A_SHELL
def test_the_end_of_a_lost_step_revives_nothing(board: LeaseBoard) -> None:
    ticket = board.ticket(board.take())
    old = f"{boot()} {uptime()}"
    break_it = script(
        'printf "%s 5\\n" "$2" > "$1/keep"; printf "%s run %s\\n" "$2" "$PPID" > "$1/step"',
        str(board.folder / "write.1"), old,
    )  # fmt: skip
    assert board.do(lease.guard(ticket).then(break_it)).returncode == 0
    assert board.who() == []


def test_another_boot_ends_a_write_lease_unless_revived(board: LeaseBoard) -> None:
    ticket = board.ticket(board.take())
    board.put("write.1/keep", f"another-boot {uptime() + 50} 60\n")
    assert board.who() == []
    assert "not renew the lease" in lost(board, ticket)
    assert board.do(lease.guard(ticket, "revive")).returncode == 0
    assert len(board.who()) == 1


def test_a_reservation_lives_on_after_a_boot(board: LeaseBoard) -> None:
    board.take("ann@desk", RESERVE, ttl=3600)
    board.put("reserve.1/keep", f"another-boot 5 {uptime() + 300}\n")
    (holder,) = board.who()
    assert 290 < holder.left <= 300, "its time counts from the new boot"
    board.put("reserve.1/keep", f"another-boot 999999 {max(0, uptime() - 1)}\n")
    assert board.who() == []


def test_a_reservation_keeps_others_out(board: LeaseBoard) -> None:
    assert board.take("ann@desk", RESERVE, ttl=3600, reason="camera").got == 1
    refused = board.take("bob@desk")
    assert [holder.reason for holder in refused.held] == ["camera"]
    assert board.take("bob@desk", RESERVE).got is None
    mine = board.take("ann@desk")
    assert mine.got == 1, "the owner writes under it"
    assert board.take("ann@desk", RESERVE, ttl=7200, reason="longer").got == 2
    assert [holder.owner for holder in board.drop("bob@desk").held] == ["ann@desk", "ann@desk"]
    done = board.drop("ann@desk")
    assert [holder.reason for holder in done.dropped] == ["longer"]
    assert [holder.kind for holder in done.held] == [WRITE], "the deploy goes on"


def test_no_reservation_over_a_foreign_writer(board: LeaseBoard) -> None:
    board.take("ann@desk")
    assert [holder.kind for holder in board.take("bob@desk", RESERVE).held] == [WRITE]
    assert board.take("ann@desk", RESERVE).got == 1


def test_a_dead_holder_is_taken_over_when_its_step_has_ended(board: LeaseBoard) -> None:
    board.take()
    (dead,) = board.who()
    assert board.take("bob@desk", dead="1:" + "0" * 32).got is None, "another token"
    board.put("write.1/step", f"{boot()} {uptime() + 30} run 77\n")
    assert board.take("bob@desk", dead=lease.dead_word(dead)).got is None
    board.put("write.1/step", f"{boot()} {uptime() + 30} idle 0\n")
    assert board.take("bob@desk", dead=lease.dead_word(dead)).got == 2


@IN_A_SHELL
def test_a_hangup_ends_a_step_no_sooner_and_is_no_reason_to_stay_busy(
    board: LeaseBoard, tmp_path: Path
) -> None:
    """adbd sends it to the guard alone; the step reads to its end of file and goes on."""
    ticket = board.ticket(board.take())
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    step = script(': > "$1"; while read -r _; do :; done; : > "$2"', str(begun), str(ended))
    guarded = subprocess.Popen(
        [*board.shell, *lease.guard(ticket).then(step).argv[1:]], stdin=subprocess.PIPE
    )
    end = time.monotonic() + 60
    while not begun.exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    guarded.send_signal(signal.SIGHUP)
    (holder,) = board.who()
    assert holder.busy, "the step still runs"
    assert not ended.exists()
    assert guarded.stdin is not None
    guarded.stdin.close()
    guarded.wait(60)
    assert ended.exists()
    (holder,) = board.who()
    assert not holder.busy


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_syntax(board: LeaseBoard, text: str) -> None:
    assert board.take(text, RESERVE, ttl=3600, reason=text).got == 1
    assert board.take(text, reason=text).got == 1, "the same owner, as written"
    write, reserve = board.who()
    for holder in (write, reserve):
        assert holder.reason == holder.owner
        assert all(c.isprintable() for c in holder.owner)
        if text.isprintable():
            assert holder.owner == text
    ticket = board.ticket(LeaseAnswer(str(board.folder), 1))
    board.drop("bob", force=True)
    assert lost(board, ticket)
    assert not list(board.leases.rglob("pwned"))
    assert len((board.folder / "reserve.1" / "owner").read_text().splitlines()) == 1


GARBAGE = ["", "\n", "x", "a[$(touch pwned)] 1 2", "1", "-5", "08", "9" * 30, "$(id)", "\0\n"]


@pytest.mark.parametrize("text", GARBAGE)
def test_damaged_files_break_nothing(board: LeaseBoard, text: str) -> None:
    """After a power cut a file may be empty; and others write into this folder, too."""
    board.take()
    first = board.ticket(LeaseAnswer(str(board.folder), 1))
    board.put("write.1/keep", f"{boot()} {text}\n")
    board.put("write.1/step", f"{boot()} {text} {text}\n")
    assert board.who() == []
    assert "not renew the lease" in lost(board, first)
    board.put("write.1/owner", text)
    (board.folder / "write.x").mkdir()
    (board.folder / "write.007").mkdir()
    (board.folder / f"write.{'9' * 30}").mkdir()
    assert board.who() == []
    assert board.take("bob@desk").got == 2
    assert not list(board.leases.rglob("pwned"))


@pytest.mark.parametrize("kind", [WRITE, RESERVE])
def test_a_number_that_leaves_none_is_named_with_its_maker(board: LeaseBoard, kind: str) -> None:
    """Made by any user of the board, with or without the words of a holder."""
    board.take()
    board.drop("ann@desk", force=True)
    last = board.folder / f"{kind}.999999998"
    last.mkdir()
    maker = getpass.getuser()
    for words in ("", f"1 =eve =x =y {'e' * 32} {boot()} 1\n"):
        (last / "owner").write_text(words)
        (last / "keep").write_text(f"{boot()} 999999990 60\n")
        for answer in (
            board.ask(lease.who_command()),
            board.take("bob@desk", kind),
            board.drop("bob@desk", force=True),
        ):
            (spent,) = answer.spent
            assert (spent.kind, spent.path, spent.maker) == (kind, str(last), maker)
            assert (answer.got, answer.raced, answer.dropped) == (None, False, [])
            assert maker in spent.describe()
            assert str(last) in spent.describe()
    assert [name for name in board.generations() if "99999" in name] == [last.name]
    shutil.rmtree(last)
    assert board.ask(lease.who_command()).spent == []
    assert board.take("bob@desk", kind).got


def test_the_guard_gives_the_status_of_the_step(board: LeaseBoard) -> None:
    ticket = board.ticket(board.take())
    done = board.do(lease.guard(ticket).then(board.step))
    assert (done.returncode, done.stdout.decode().strip()) == (0, boot())
    assert board.do(lease.guard(ticket).then(board.failing)).returncode in {7, 74}
    assert not any(holder.busy for holder in board.who())


@pytest.mark.skipif(os.geteuid() != 0, reason="two users need root")
def test_the_maker_of_the_last_number_is_another_user() -> None:
    root = Path(tempfile.mkdtemp(dir="/var/tmp"))
    root.chmod(0o755)
    try:
        board = LeaseBoard(root, "dash")
        board.user = 1234
        board.take()
        last = board.folder / "write.999999998"
        last.mkdir()
        os.chown(last, 4321, 4321)
        assert board.take().spent[0].maker == "4321"
    finally:
        shutil.rmtree(root)


def test_places_that_cannot_be_used(board: LeaseBoard, tmp_path: Path) -> None:
    board.folder.symlink_to(tmp_path)
    with pytest.raises(DeviceError, match="symbolic link"):
        board.take()
    board.folder.unlink()
    board.folder.write_text("")
    with pytest.raises(DeviceError, match="is no folder"):
        board.take()
    board.folder.unlink()
    board.leases.rmdir()
    board.leases.symlink_to("nowhere")
    with pytest.raises(DeviceError, match="no folder for leases can be written"):
        board.take()


def test_a_full_disk_is_named(board: LeaseBoard) -> None:
    if os.geteuid():
        pytest.skip("mounting a small disk needs root")
    size = ["-o", "size=4k,mode=1777"]
    done = subprocess.run(
        ["mount", "-t", "tmpfs", *size, "small", str(board.leases)],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"no tmpfs here: {done.stderr.decode()}")
    try:
        (board.leases / "fill").write_bytes(b"x" * 4096)
        with pytest.raises(DeviceError, match="no lease can be made in"):
            board.take()
    finally:
        subprocess.run(["umount", str(board.leases)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="two users need root")
def test_two_users_of_one_board() -> None:
    """What one user made another reads, respects, breaks by a generation of his own."""
    root = Path(tempfile.mkdtemp(dir="/var/tmp"))  # pytest's folder is for its user alone
    root.chmod(0o755)
    try:
        board = LeaseBoard(root, "dash")
        board.user = 1234
        ticket = board.ticket(board.take())
        board.user = 4321
        assert board.take("bob@desk").got is None
        assert board.drop("bob@desk", force=True).dropped
        assert board.take("bob@desk").got == 3
        board.user = 1234
        assert "bob@desk" in lost(board, ticket)
        board.folder.chmod(0o755)
        board.user = 4321
        with pytest.raises(DeviceError, match="cannot be written by this user"):
            board.take()
    finally:
        shutil.rmtree(root)


def test_many_at_once(board: LeaseBoard) -> None:
    """Forty takers at one instant: one gets it, and each other is told or raced.

    Ten where each is a new Python.
    """
    turns = 1 if isinstance(board, PcLeaseBoard) else 4
    answers: list[LeaseAnswer] = []
    start = threading.Barrier(10)

    def run(number: int) -> None:
        start.wait()
        for turn in range(turns):
            token = f"{number * 100 + turn + 1:032x}"
            command = lease.take_command(WRITE, f"u{number}", "", "", token=token, ttl=60)
            answers.append(board.ask(command))

    threads = [threading.Thread(target=run, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 10 * turns
    assert sum(answer.got is not None for answer in answers) <= 1
    assert all(answer.got or answer.held or answer.raced for answer in answers)
    won = [answer for answer in answers if answer.got]
    holders = board.who()
    assert len(holders) == len(won)
    assert not list(board.folder.glob(".new.*"))


@pytest.fixture
def between(
    board: LeaseBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], None]:
    """Has the board's next rename wait for a script: what others do between look and rename."""
    bin_dir, hook = tmp_path / "hooked", tmp_path / "hook"
    bin_dir.mkdir()
    real = shutil.which("mv")
    (bin_dir / "mv").write_text(
        f'#!/bin/sh\nif [ -e "{hook}" ]; then mv() {{ {real} "$@"; }}; mv "{hook}" "{hook}.run"; '
        f'sh -eu "{hook}.run" || exit 99; fi\nexec {real} "$@"\n'
    )
    (bin_dir / "mv").chmod(0o755)

    def hooked(rename: Callable[..., None]) -> Callable[..., None]:
        def wait(*names: str) -> None:
            if hook.exists():
                text = hook.read_text()
                hook.unlink()
                subprocess.run(["sh", "-euc", text], check=True)
            rename(*names)

        return wait

    if isinstance(board, PcLeaseBoard):
        for name in ("rename", "replace"):
            monkeypatch.setattr(os, name, hooked(getattr(os, name)))

    def run_then(text: str) -> None:
        board.extra = {"PATH": f"{bin_dir}:{os.environ['PATH']}"}
        hook.write_text(f'cd "{board.folder}"\n{text}\n')

    return run_then


def test_a_holder_that_renews_in_the_last_instant_stays(
    board: LeaseBoard, between: Callable[[str], None]
) -> None:
    ticket = board.ticket(board.take("ann@desk"))
    for name in ("keep", "step"):
        board.put("write.1/keep", f"{boot()} 1 60\n")
        between(f"echo '{boot()} {uptime() + 50} 0 0' > write.1/{name}")
        answer = board.take("bob@desk")
        assert answer.got is None
        assert [holder.owner for holder in answer.held] == ["ann@desk"]
    assert board.do(lease.guard(ticket).then(board.step)).returncode == 0
    assert board.generations() == ["write.1"]


def test_a_slow_taker_of_a_number_long_gone_is_refused(
    board: LeaseBoard, between: Callable[[str], None], tmp_path: Path
) -> None:
    board.take("ann@desk")
    aside = tmp_path / "aside"
    shutil.copytree(board.folder / "write.1", aside)
    board.put("write.1/released", "")
    between(f"cp -r '{aside}' write.9")
    answer = board.take("bob@desk")
    assert answer.got is None
    assert [(holder.owner, holder.generation) for holder in answer.held] == [("ann@desk", 9)]
    assert board.generations() == ["write.1", "write.9"]


def test_a_reservation_in_the_last_instant_keeps_a_writer_out(
    board: LeaseBoard, between: Callable[[str], None], tmp_path: Path
) -> None:
    board.take("ann@desk", RESERVE)
    aside = tmp_path / "aside"
    shutil.move(board.folder / "reserve.1", aside)
    between(f"cp -r '{aside}' reserve.1")
    answer = board.take("bob@desk")
    assert answer.got is None
    assert [(holder.owner, holder.kind) for holder in answer.held] == [("ann@desk", RESERVE)]
    assert board.generations() == ["reserve.1"]


def test_a_lease_taken_in_the_instant_of_a_renewal_is_lost(
    board: LeaseBoard, between: Callable[[str], None], tmp_path: Path
) -> None:
    """The other side: the guard renews, and only then looks who is the highest."""
    ticket = board.ticket(board.take("ann@desk"))
    shutil.copytree(board.folder / "write.1", tmp_path / "aside")
    between(f"cp -r '{tmp_path}/aside' write.2")
    assert lost(board, ticket)


def test_busybox_tools_alone(tmp_path: Path) -> None:
    """The tools of a small board: no coreutils on the path."""
    busybox = needs.tool("busybox")
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    for tool in ("mkdir", "mv", "rm", "chmod", "sh", "touch", "true", "cat"):
        (bin_dir / tool).symlink_to(busybox)
    board = LeaseBoard(tmp_path, "busybox")
    board.extra = {"PATH": str(bin_dir)}
    ticket = board.ticket(board.take())
    assert board.do(lease.guard(ticket).then(board.step)).returncode == 0
    assert board.take("bob@desk").got is None
    assert board.drop("bob@desk", force=True).dropped
    assert "taken by bob@desk" in lost(board, ticket)
    assert board.take("bob@desk").got == 3


def test_who_goes_before_a_reading_command(board: LeaseBoard) -> None:
    board.take("ann@desk", RESERVE, ttl=100)
    base = str(board.base)
    done = board.do(lease.who_command(device_script("status", base)))
    answer = lease.parse_lease("noise\n" + done.stdout.decode(), "board")
    assert [holder.owner for holder in answer.held] == ["ann@desk"]
    assert done.stdout.decode().splitlines()[-2:] == ["fleet-status 1", "end"]


def test_a_look_goes_on_behind_the_lease_that_was_taken(board: LeaseBoard) -> None:
    said = []
    for number in (1, 2):
        command = lease.take_command(
            WRITE, f"{number}@desk", "x", "run", token=f"{number:032x}", ttl=60, then=board.step
        )
        said.append(board.do(command).stdout.decode().splitlines())
    assert said[0][-3:] == ["got write 1", "end", boot()]
    assert said[1][-1] == "end", "another has it: nothing is looked at"


def test_scripts_and_program_understand_each_other(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    program, scripts = PcLeaseBoard(tmp_path / "a", "dash"), LeaseBoard(tmp_path / "b", "dash")
    scripts.leases = program.leases
    answer = program.take()
    assert [holder.owner for holder in scripts.who()] == ["ann@desk"]
    assert scripts.take("bob@desk").got is None
    scripts.do(lease.guard(program.ticket(answer), "keep"))
    assert program.ask(lease.free_command(program.ticket(answer))).freed
    assert scripts.take("bob@desk").got == 2
    assert [holder.owner for holder in program.who()] == ["bob@desk"]
    assert uptime() > 0


def test_commands_fit_into_dropbear() -> None:
    ticket = Ticket("/data/local/tmp/fleet-lease", 999_999_999, "f" * 32, 86400)
    long = "é'" * 200
    take = lease.take_command(WRITE, long, long, long, token="f" * 32, ttl=60)
    scripts = ("stage", "switch", "prune", "receive", "run", "collect", "place", "accept")
    steps = [lease.guard(ticket, 60).then(device_script(name, "/" + "x" * 200)) for name in scripts]
    reads = [lease.who_command(device_script(name, "/x")) for name in ("status", "state")]
    for command in (take, lease.drop_command(long, long, "f" * 32, force=True), *steps, *reads):
        assert len(render(command)) < DROPBEAR_BYTES


def test_a_cut_answer_is_an_error() -> None:
    for text in ("", "fleet-lease 1\ngot write 1\n", "end\n"):
        with pytest.raises(DeviceError, match="returned only a part"):
            lease.parse_lease(text, "board")


def test_a_program_of_status_113_has_lost_nothing() -> None:
    ticket = Ticket("/x", 1, "a" * 32, 60)
    assert lease.lost_words(ticket, 113, "no") == ""
    assert lease.lost_words(ticket, 113, f"fleet-lease-lost {'b' * 32} taken") == ""
    assert lease.lost_words(ticket, 0, f"fleet-lease-lost {'a' * 32} taken") == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(5, "5 s"), (600, "10 min"), (7200, "2 h"), (7500, "2 h 5 min"), (180_000, "2 d 2 h")],
)
def test_times_for_people(seconds: int, text: str) -> None:
    assert human_seconds(seconds) == text
