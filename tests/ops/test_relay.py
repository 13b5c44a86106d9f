"""A board that sends a blob to a neighbour: the real scripts; only ssh is a stand-in here."""

from __future__ import annotations

import hashlib
import random
import shlex
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from fleet.device.call import worker
from fleet.model.command import Command
from fleet.model.errors import CancelledError
from fleet.model.files import FileRef, file_ref
from fleet.model.plan import Blob
from fleet.ops.backend import backend_for
from fleet.ops.frames import Style, frames
from fleet.ops.relay import PIECE_BLOCKS, WINDOW, Passage, opening, relay_command
from fleet.transport.neighbour import Peer
from fleet.transport.sshclient import Hop

from .board import SHELLS, Board, flat, program

MIB = 1 << 20
SIZE = 10 * MIB + 77
TARGET = Peer("b", (Hop("h", 1, "u", (), ("ssh-ed25519 AAAA",)),), "10.0.0.9", 2222, 5.0)
# Says that it is in, as ssh's LocalCommand does, and is the other board itself.
SSH = '#!/bin/sh\nif [ "$1" = -V ]; then echo OpenSSH_9.9 >&2; exit; fi\necho "relay in"\n'


@pytest.fixture(params=SHELLS[:4])
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Board:
    found = Board(tmp_path, request.param)
    tools = structs.replace(found.facts.tools, python3=sys.executable)
    found.facts = structs.replace(found.facts, tools=tools)
    return found


@pytest.fixture
def item(tmp_path: Path) -> FileRef:
    path = tmp_path / "model.bin"
    path.write_bytes(random.Random(7).randbytes(SIZE))
    return file_ref(path, "model.bin")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Path]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "agent"))
        yield tmp_path / "agent"


@pytest.mark.parametrize("text", [b"", worker()])
@pytest.mark.parametrize("offset", [0, 5 * MIB + 3])
def test_what_goes_before_the_bytes_is_what_the_workstation_would_send(
    item: FileRef, text: bytes, offset: int
) -> None:
    blob = Blob(item, offset)
    whole = flat(frames([blob], lambda *_: None, Style(worker=text)))
    assert opening(blob, text).encode() + item.source.read_bytes()[offset:] == whole


def relay(
    board: Board, item: FileRef, offset: int, agent: Path, *, lines: int = 99, python: bool = True
) -> Passage:
    """The source and the target are one machine with two base folders."""
    source = board.base.parent / "source"
    (source / "store").mkdir(parents=True, exist_ok=True)
    if not (source / "store" / item.sha256).exists():
        (source / "store" / item.sha256).write_bytes(item.source.read_bytes())
    store = board.base / "store"
    store.mkdir(parents=True)
    if offset:
        (store / f"{item.sha256}.part").write_bytes(item.source.read_bytes()[:offset])
    board.tools.mkdir(exist_ok=True)
    (board.tools / "ssh").write_text(SSH + 'for last; do :; done\nexec sh -c "$last"\n')
    (board.tools / "ssh").chmod(0o755)
    blob = Blob(item, offset)
    facts = board.facts if python else board.without(python3=None)
    take = backend_for(facts).receive()
    command = relay_command(blob, str(source), TARGET, take, program(facts))
    done = board.argv(command.argv, b"\n" * lines, {"SSH_AUTH_SOCK": str(agent)})
    passage = Passage(blob, lambda _: None, lambda: None)
    passage.take(done.stdout)
    assert passage.inside or passage.refused, done
    return passage


@pytest.mark.parametrize("offset", [0, MIB + 5, 10 * MIB, SIZE - 1])
def test_it_goes_on_at_the_byte(board: Board, item: FileRef, agent: Path, offset: int) -> None:
    passage = relay(board, item, offset, agent, python=offset % 2 == 0)
    assert passage.receipt.ok == {item.sha256}
    assert (board.base / "store" / item.sha256).read_bytes() == item.source.read_bytes()
    assert board.store() == {item.sha256}


def test_without_leave_nothing_more_goes(board: Board, item: FileRef, agent: Path) -> None:
    passage = relay(board, item, 0, agent, lines=1)
    assert passage.receipt.ok == set()
    part = board.base / "store" / f"{item.sha256}.part"
    assert part.stat().st_size == PIECE_BLOCKS * MIB


def test_a_changed_byte_is_found_by_who_takes_it(
    board: Board, item: FileRef, agent: Path, tmp_path: Path
) -> None:
    (tmp_path / "source" / "store").mkdir(parents=True)
    (tmp_path / "source" / "store" / item.sha256).write_bytes(bytes(SIZE))
    passage = relay(board, item, 0, agent)
    assert list(passage.receipt.bad) == [item.sha256]
    assert board.store() == set()


def test_a_blob_of_another_size_is_not_sent(
    board: Board, item: FileRef, agent: Path, tmp_path: Path
) -> None:
    (tmp_path / "source" / "store").mkdir(parents=True)
    (tmp_path / "source" / "store" / item.sha256).write_bytes(bytes(SIZE + 1))
    passage = relay(board, item, 0, agent)
    assert (passage.inside, passage.gone) == (False, True)
    assert board.store() == set()


def test_no_agent_is_said(board: Board, item: FileRef, tmp_path: Path) -> None:
    passage = relay(board, item, 0, tmp_path / "nothing")
    assert passage.refused == "its ssh server forwards no agent"
    assert not passage.gone


def test_words_of_the_command_stay_words(item: FileRef, tmp_path: Path) -> None:
    """What varies stands behind the constant script, each as one argument."""
    hostile = replace(TARGET, address="$(touch x); '\"`")
    command = relay_command(Blob(item), str(tmp_path), hostile, receive(tmp_path), b"")
    assert hostile.address in command.argv
    assert hostile.address not in command.argv[2]
    assert shlex.split(command.argv[12])[:2] == ["sh", "-c"], "as rendered for the target"


def receive(root: Path) -> Command:
    return backend_for(structs.replace(Board(root, "dash").facts, base_dir="/b c")).receive()


def passage_of(item: FileRef, offset: int = 0) -> tuple[Passage, list[int]]:
    told: list[int] = []
    return Passage(Blob(item, offset), told.append, lambda: None), told


def test_leave_is_given_as_the_bytes_go(tmp_path: Path) -> None:
    size = 100 * MIB
    item = FileRef(tmp_path / "x", "x", size, hashlib.sha256(b"").hexdigest())
    passage, told = passage_of(item)
    leave = passage.leave()
    for _ in range(WINDOW):
        assert next(leave) == b"\n"
    assert next(leave) == b"", "no further ahead; who reads this may look after his lease"
    passage.take(b"sent 8\nok")
    assert next(leave) == b"\n"
    assert next(leave) == b""
    assert told == [8 * MIB]
    passage.take(b" abc\nsent 104\n")
    assert passage.receipt.ok == {"abc"}
    assert told[-1] == size
    assert list(leave) == [b"\n"] * (13 - WINDOW - 1)


def test_leave_ends_where_nothing_more_may_be_sent(item: FileRef) -> None:
    def check() -> None:
        raise CancelledError("cancelled")

    passage = Passage(Blob(item), lambda _: None, check)
    with pytest.raises(CancelledError):
        next(passage.leave())
