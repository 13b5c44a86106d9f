"""Large new files are sent while they are hashed: never twice, and gone on with after any end."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet.content import hashes
from fleet.content.signatures import hash_and_sign
from fleet.engine.transfer import upload
from fleet.engine.transfer.context import TransferOptions
from fleet.model.events import StepStarted, Warned
from tests.chaos import Chaos, Fault

from .conftest import Target, without_python

MIB = 1 << 20
DATA = random.Random(9).randbytes(48 * MIB)
PLAIN = TransferOptions(carrier="paramiko", compress="never")
SECONDS = 20.0


@pytest.fixture(params=["python", "sh"])
def target(
    request: pytest.FixtureRequest, target: Target, monkeypatch: pytest.MonkeyPatch
) -> Target:
    """Taken by Python, and by the scripts."""
    if request.param == "sh":
        without_python(monkeypatch)
    return target


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.bin"
    path.write_bytes(DATA)
    os.utime(path, (1_000_000_000, 1_000_000_000))  # the hash of a file of just now is not kept
    return path


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.01)


def hash_when(monkeypatch: pytest.MonkeyPatch, ready: Callable[[], object]) -> None:
    """The hash of a large file is known only once that is true."""

    def late(path: Path, *args: Any, **more: Any) -> object:
        until(ready)
        return hash_and_sign(path, *args, **more)

    monkeypatch.setattr(hashes, "hash_and_sign", late)


def parts(target: Target) -> list[Path]:
    return [*(target.base / "store").glob("late-*.part")]


def sizes(target: Target) -> list[int]:
    return [one.stat().st_size for one in parts(target)]


def test_all_of_it_is_there_before_its_hash_is_known(
    target: Target, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hash_when(monkeypatch, lambda: sizes(target) == [len(DATA)])
    done = target.push(model)
    assert done.outcome == "changed", done.error
    assert done.bytes_sent == len(DATA)
    assert (target.current / "model.bin").read_bytes() == DATA
    assert [one.name for one in (target.base / "store").iterdir()] == [
        (target.current / "model.bin").resolve().name
    ]
    says = [one.text for one in target.events if isinstance(one, StepStarted)]
    assert any("while they are hashed" in one for one in says)


def test_what_went_to_an_empty_device_is_not_asked_for(
    target: Target, model: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    hash_when(monkeypatch, lambda: sizes(target) == [len(DATA)])
    done = target.push(model, transfer=PLAIN)
    assert (done.outcome, done.bytes_sent) == ("changed", len(DATA)), done.error
    trips = done.round_trips - ("sh" in request.node.name)
    assert trips == 3, "facts, lease, the file to the lease back; a shell makes the release apart"


def test_of_two_files_the_small_one_follows(
    target: Target, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hash_when(monkeypatch, lambda: sizes(target) == [len(DATA)])
    small = tmp_path / "tool.sh"
    small.write_text("1")
    done = target.push(model, small)
    assert (done.outcome, done.bytes_sent) == ("changed", len(DATA) + 1), done.error
    assert (target.current / "tool.sh").read_text() == "1"
    assert (target.current / "model.bin").read_bytes() == DATA


def test_what_the_device_may_have_waits_for_its_hash(
    target: Target, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another workstation brought it, under another name: nothing is sent."""
    target.push(model)
    monkeypatch.setenv("FLEET_HOME", str(tmp_path / "another home"))
    done = target.push(model, name="other")
    assert (done.outcome, done.bytes_sent) == ("changed", 0)


def test_a_file_of_the_live_release_goes_as_what_differs(target: Target, model: Path) -> None:
    target.push(model)
    model.write_bytes(DATA + b"more")
    done = target.push(model)
    assert done.bytes_sent < 100_000
    assert (target.current / "model.bin").read_bytes() == DATA + b"more"


def test_a_cut_is_gone_on_with_at_the_byte(
    target: Target, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "WAIT_SECONDS", 0.3)
    with Chaos(int(target.host.port or 0), [Fault(cut=20 * MIB)]) as link:
        target.host = link.through(target.host, tmp_path)
        hash_when(monkeypatch, lambda: sizes(target) == [len(DATA)])
        done = target.push(model, transfer=PLAIN)
        assert done.outcome == "changed", done.error
        assert link.cuts == 1
        assert link.sent < len(DATA) + 6 * MIB
    assert (target.current / "model.bin").read_bytes() == DATA


def test_a_push_that_ended_is_gone_on_with_by_the_next_one(
    target: Target, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hash is known by then, and the part has another name."""
    monkeypatch.setattr(upload, "TRIES", 1)
    hash_when(monkeypatch, lambda: parts(target))
    host = target.host
    with Chaos(int(host.port or 0), [Fault(cut=20 * MIB)]) as link:
        target.host = link.through(host, tmp_path)
        assert target.push(model, transfer=PLAIN).outcome == "unreachable"
    until(lambda: parts(target))
    before = -1
    while before != (before := sizes(target)[0]):
        time.sleep(0.3)
    target.host = host
    done = target.push(model, transfer=PLAIN)
    assert done.outcome == "changed", done.error
    assert done.bytes_sent == len(DATA) - before
    assert before > 15 * MIB
    assert (target.current / "model.bin").read_bytes() == DATA
    assert parts(target) == []


def test_a_file_that_changes_meanwhile_is_sent_by_its_hash(
    target: Target, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What went ahead is another content; the hash is that of the file as it is now."""
    changed = threading.Event()

    def change() -> bool:
        if sizes(target) == [len(DATA)] and not changed.is_set():
            with model.open("r+b") as stream:
                stream.write(b"changed")
            changed.set()
        return changed.is_set()

    hash_when(monkeypatch, change)
    done = target.push(model, transfer=PLAIN)
    assert done.outcome == "changed", done.error
    assert (target.current / "model.bin").read_bytes() == b"changed" + DATA[7:]
    assert any("sends it again" in one.text for one in target.events if isinstance(one, Warned))


def test_a_file_that_is_gone_meanwhile_is_one_clear_error(
    target: Target, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(path: Path, **_: object) -> object:
        until(lambda: parts(target))
        path.unlink()
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr(hashes, "hash_and_sign", gone)
    done = target.push(model, transfer=PLAIN)
    assert done.outcome == "failed"
    assert done.error is not None
    assert "model.bin" in done.error.message
    assert not target.current.exists()


def test_parts_of_pushes_that_were_given_up_are_pruned(target: Target, model: Path) -> None:
    store = target.base / "store"
    store.mkdir(parents=True)
    (store / f"late-{'0' * 32}.part").write_bytes(b"begun")
    (store / f"{'a' * 64}.part").write_bytes(b"begun")
    target.push(model)
    assert {one.name for one in store.iterdir()} == {
        f"{'a' * 64}.part",
        (target.current / "model.bin").resolve().name,
    }
