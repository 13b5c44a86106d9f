"""Leases by the Windows program: the tests that the scripts have, on the same folders."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fleet.model.command import Command, script
from fleet.model.lease import WRITE, Ticket
from fleet.ops import lease
from tests.ops import test_lease as scripts
from tests.ops.test_lease import (
    GARBAGE,
    HOSTILE,
    boot,
    test_a_dead_holder_is_taken_over_when_its_step_has_ended,
    test_a_number_that_leaves_none_is_named_with_its_maker,
    test_a_reservation_keeps_others_out,
    test_a_reservation_lives_on_after_a_boot,
    test_another_boot_ends_a_write_lease_unless_revived,
    test_generations_rise_and_the_highest_stays,
    test_no_reservation_over_a_foreign_writer,
    test_what_was_given_back_or_removed_is_lost,
    test_who_was_broken_loses_and_learns_by_whom,
    uptime,
)

from .board import PcLeaseBoard

__all__ = [
    "test_a_dead_holder_is_taken_over_when_its_step_has_ended",
    "test_a_number_that_leaves_none_is_named_with_its_maker",
    "test_a_reservation_keeps_others_out",
    "test_a_reservation_lives_on_after_a_boot",
    "test_another_boot_ends_a_write_lease_unless_revived",
    "test_generations_rise_and_the_highest_stays",
    "test_no_reservation_over_a_foreign_writer",
    "test_what_was_given_back_or_removed_is_lost",
    "test_who_was_broken_loses_and_learns_by_whom",
]

STEP = script("not run there", name="boot_id")


def lost(board: PcLeaseBoard, ticket: Ticket, command: Command | None = None) -> str:
    """Why the guard refuses; and the step did not run."""
    done = board.do(command or lease.guard(ticket).then(STEP))
    assert done.returncode == lease.LOST_STATUS, done
    assert done.stdout == b""
    return lease.lost_words(ticket, done.returncode, done.stderr.decode())


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PcLeaseBoard:
    monkeypatch.setattr(scripts, "lost", lost)
    return PcLeaseBoard(tmp_path, "dash")


def test_one_writer_and_who_only_reads(board: PcLeaseBoard) -> None:
    assert board.who() == []
    assert not board.folder.exists()
    first = board.take()
    assert (first.got, first.place, first.held) == (1, str(board.folder), [])
    (holder,) = board.who()
    assert (holder.owner, holder.reason, holder.run_id) == ("ann@desk", "deploy app", "run-1")
    for who in ("bob@desk", "ann@desk"):
        second = board.take(who)
        assert second.got is None, "another run of the same person is another writer"
        assert [holder.token for holder in second.held] == [holder.token]
    assert board.ask(lease.free_command(board.ticket(first))).freed is False, "another token"


def test_a_look_goes_on_behind_the_lease_that_was_taken(board: PcLeaseBoard) -> None:
    said = []
    for number in (1, 2):
        command = lease.take_command(
            WRITE, f"{number}@desk", "x", "run", token=f"{number:032x}", ttl=60, then=STEP
        )
        said.append(board.do(command).stdout.decode().splitlines())
    assert said[0][-3:] == ["got write 1", "end", boot()]
    assert said[1][-1] == "end", "another has it: nothing is looked at"


def test_the_guard_runs_the_step_and_gives_its_status(board: PcLeaseBoard) -> None:
    ticket = board.ticket(board.take())
    done = board.do(lease.guard(ticket).then(STEP))
    assert (done.returncode, done.stdout.decode().strip()) == (0, boot())
    missing = script("", str(board.leases / "none"), name="show")
    assert board.do(lease.guard(ticket).then(missing)).returncode == 74
    assert not any(holder.busy for holder in board.who())


def test_a_step_holds_the_lease_while_it_runs(board: PcLeaseBoard) -> None:
    ticket = board.ticket(board.take())
    done = board.do(lease.guard(ticket, 500).then(lease.who_command()))
    (holder,) = lease.parse_lease(done.stdout.decode(), "board").held
    assert holder.busy
    assert 490 < holder.left <= 501
    (after,) = board.who()
    assert (after.busy, after.left <= 61) == (False, True)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_breaks_a_line(board: PcLeaseBoard, text: str) -> None:
    assert board.take(text, reason=text).got == 1
    (holder,) = board.who()
    assert holder.reason == holder.owner


@pytest.mark.parametrize("text", GARBAGE)
def test_damaged_files_break_nothing(board: PcLeaseBoard, text: str) -> None:
    board.take()
    board.put("write.1/keep", f"{boot()} {text}\n")
    board.put("write.1/step", f"{boot()} {text} {text}\n")
    assert board.who() == []
    board.put("write.1/owner", text)
    for name in ("write.x", f"write.{'9' * 30}"):
        (board.folder / name).mkdir()
    assert board.who() == []
    assert board.take("bob@desk").got == 2


def test_scripts_and_program_understand_each_other(board: PcLeaseBoard, tmp_path: Path) -> None:
    (tmp_path / "o").mkdir()
    other = scripts.LeaseBoard(tmp_path / "o", "dash")
    other.leases = board.leases
    answer = board.take()
    assert [holder.owner for holder in other.who()] == ["ann@desk"]
    assert other.take("bob@desk").got is None
    other.do(lease.guard(board.ticket(answer), "keep"))
    assert board.ask(lease.free_command(board.ticket(answer))).freed
    assert other.take("bob@desk").got == 2
    assert [holder.owner for holder in board.who()] == ["bob@desk"]
    assert uptime() > 0


def test_many_at_once_and_one_has_it(board: PcLeaseBoard) -> None:
    won: list[int] = []

    def one(number: int) -> None:
        command = lease.take_command(
            "write", f"u{number}", "r", "j", token=f"{number:032x}", ttl=60
        )
        answer = board.ask(command)
        if answer.got is not None:
            won.append(answer.got)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) <= 1
    assert len(board.who()) == len(won)
