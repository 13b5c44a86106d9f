"""Whether a release is as it was at the switch: by GNU's find in every shell, and by Python."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.model.manifest import Manifest
from fleet.ops import release
from fleet.ops.backend import backend_for

from .board import Board, manifest

CONTENT = {
    "lib/libA.so": b"a" * 3000,
    "lib/deep/er/x": b"x",
    "odd 'name' $x é \\ %s.bin": b"odd",
    "Z": b"upper case comes first",
    "empty": b"",
}


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path, "python")


@pytest.fixture
def app(board: Board, tmp_path: Path) -> Manifest:
    made = manifest(tmp_path / "src", CONTENT)
    board.deploy(made)
    return made


def asked(board: Board, app: Manifest, shell: str) -> release.ReleaseState:
    """By the command for a device with this shell and GNU's find; "" for Python."""
    question = backend_for(board.without(find_printf=bool(shell))).stamped(app)
    assert question is not None
    asker = Board(board.base.parent, shell or "python")
    done = asker.argv(question.command.argv, b"".join(question.stdin))
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    return release.parse_state(done.stdout.decode(), "board", app)


@pytest.mark.parametrize("shell", ["", "dash", "bash", "mksh"])
def test_all_is_as_it_was(board: Board, app: Manifest, shell: str) -> None:
    state = asked(board, app, shell)
    assert (state.current, state.installed, state.sealed) == (app.id, True, True)
    assert state.history == (app.id,)
    assert state.have == set(app.blobs)


def later(path: Path) -> None:
    about = path.stat()
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns + 1))


def another(path: Path) -> None:
    """The same size and times, another file."""
    about, copy = path.stat(), path.with_name("copy")
    copy.write_bytes(bytes(about.st_size))
    os.utime(copy, ns=(about.st_atime_ns, about.st_mtime_ns))
    copy.replace(path)


def elsewhere(rel: Path) -> None:
    (rel / "Z").unlink()
    (rel / "Z").symlink_to((rel / "empty").resolve())


def own(rel: Path) -> Path:
    return rel.parents[2] / "meta" / rel.parent.name / rel.name


CHANGES: dict[str, Callable[[Path], object]] = {
    "a file more": lambda rel: (rel / "more").write_text("x"),
    "a file less": lambda rel: (rel / "empty").unlink(),
    "a link that leads elsewhere": elsewhere,
    "a blob one nanosecond younger": lambda rel: later((rel / "lib/libA.so").resolve()),
    "another blob of this size and time": lambda rel: another((rel / "lib/libA.so").resolve()),
    "a blob that is gone": lambda rel: (rel / "Z").resolve().unlink(),
    "env.sh changed": lambda rel: (own(rel) / "env.sh").write_text("x"),
    "not installed": lambda rel: (own(rel) / ".installed").unlink(),
    "no seal": lambda rel: (own(rel) / ".seal").unlink(),
    "an empty seal": lambda rel: (own(rel) / ".seal").write_text(""),
    "the seal of a shell": lambda rel: (own(rel) / ".seal").write_text("1 2 3 4 /x\n"),
}


@pytest.mark.parametrize(
    "shells",
    [
        ("", "dash"),
        *(pytest.param((shell,), marks=pytest.mark.slow) for shell in ("bash", "busybox", "mksh")),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changed_is_seen(
    board: Board, app: Manifest, shells: tuple[str, ...], change: str
) -> None:
    CHANGES[change](board.base / "releases" / "app" / app.id)
    for shell in shells:
        assert not asked(board, app, shell).sealed, shell or "python"


@pytest.mark.parametrize("shell", ["", "dash", "bash", "busybox", "mksh"])
def test_another_release_is_live(board: Board, app: Manifest, tmp_path: Path, shell: str) -> None:
    (tmp_path / "other").mkdir()
    board.deploy(manifest(tmp_path / "other", {"f": b"other"}))
    assert not asked(board, app, shell).sealed


def test_a_find_without_printf_finds_nothing_sealed(board: Board, app: Manifest) -> None:
    """Facts of another day: a longer look follows, nothing is believed."""
    board.tools.mkdir()
    (board.tools / "find").write_text('#!/bin/sh\necho "find: unknown predicate" >&2; exit 1\n')
    (board.tools / "find").chmod(0o755)
    assert not asked(board, app, "dash").sealed
    assert asked(board, app, "").sealed
