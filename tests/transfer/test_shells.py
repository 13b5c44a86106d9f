"""How many login shells a push starts on the board: each may take a tenth of a second."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.engine.deploy.push import PushOptions
from fleet.engine.transfer import carriers
from fleet.engine.transfer.context import TransferOptions
from fleet.transport.sshclient import client
from tests.transport.sshd import Sshd, counting

from .conftest import Target, without_python
from .test_push import MIB, a_folder, same

CONTENT = random.Random(4).randbytes(40 * MIB)


@pytest.fixture
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sshd, Callable[[], int]]]:
    with counting(tmp_path_factory.mktemp("counted")) as one:
        yield one


@pytest.fixture
def shells(counted: tuple[Sshd, Callable[[], int]], target: Target) -> Callable[[], int]:
    server, count = counted
    target.host, target.server = server.host(base_dir=target.host.base_dir), server
    before = count()
    return lambda: count() - before


def test_a_first_push_of_small_files_has_one_and_so_has_the_next(
    target: Target, tmp_path: Path, shells: Callable[[], int]
) -> None:
    source = a_folder(tmp_path)
    done = target.push(source)
    assert done.outcome == "changed", done.error
    assert same(source, target.current)
    assert shells() == 1
    assert target.push(source).outcome == "unchanged"
    assert shells() == 2


def test_a_board_without_python_has_two(
    target: Target, tmp_path: Path, shells: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is received, and what makes a release of it, have a standard input each."""
    without_python(monkeypatch)
    source = a_folder(tmp_path)
    assert target.push(source).outcome == "changed"
    assert same(source, target.current)
    assert shells() == 2


@pytest.mark.skipif(not client(), reason="there is no ssh client here that speaks AES-GCM")
def test_a_large_file_has_one_for_control_and_one_for_data(
    target: Target, tmp_path: Path, shells: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carriers, "WAIT_SECONDS", 30.0)  # on a busy machine it comes late
    source = tmp_path / "model.bin"
    source.write_bytes(CONTENT)
    done = target.push(source)
    assert done.outcome == "changed", done.error
    assert (target.current / "model.bin").read_bytes() == CONTENT
    assert shells() == 2


def test_of_a_board_that_is_not_known_the_client_waits_for_the_first_connection(
    target: Target, tmp_path: Path, shells: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not client():
        pytest.skip("there is no ssh client here that speaks AES-GCM")
    monkeypatch.setattr(carriers, "WAIT_SECONDS", 30.0)
    target.host = replace(target.host, known_hosts=tmp_path / "known")
    source = tmp_path / "model.bin"
    source.write_bytes(CONTENT)
    options = PushOptions(transfer=TransferOptions(compress="never"), accept_new=True)
    (done,) = target.work([source], "app", options).push()
    assert done.outcome == "changed", done.error
    assert shells() == 2
