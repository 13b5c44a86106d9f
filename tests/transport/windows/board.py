"""The work of Windows devices, done by the program that goes there, on this system."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest
from msgspec.structs import replace

from fleet.device.call import LOADER
from fleet.device.shell import device_script
from fleet.device.windows.board import main
from fleet.model.command import Call, Command
from fleet.model.facts import Windows
from fleet.transport import windows as speech
from tests.ops.board import Board, LeaseBoard, flat


def work(
    words: tuple[str, ...], stdin: bytes = b"", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """As the transport has it started: the loader, and everything by standard input."""
    if words[0] != "run" and threading.current_thread() is threading.main_thread():
        return here(words, stdin, env or {})
    command = Command(("x",), call=Call(words[0], words[1:]))
    sent = flat(speech.spoken(command, [stdin]))
    job = sent[16 + int(sent[7:15]) :]
    assert job.endswith(json.dumps(words).encode() + stdin)
    argv = [sys.executable, "-I", "-S", "-u", "-c", LOADER]
    return subprocess.run(
        argv,
        input=job,
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, **(env or {})},
    )


def here(
    words: tuple[str, ...], stdin: bytes, env: dict[str, str], main: Callable[..., int] = main
) -> subprocess.CompletedProcess[bytes]:
    """The same without a process: a tenth of the time."""
    given, out, err = (io.TextIOWrapper(io.BytesIO(data), "utf-8") for data in (stdin, b"", b""))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        for name, stream in (("stdin", given), ("stdout", out), ("stderr", err)):
            patch.setattr(sys, name, stream)
        status = main(*words)
        out.flush()
        err.flush()
    said, complained = (stream.buffer.getvalue() for stream in (out, err))
    return subprocess.CompletedProcess(words, status, said, complained)


@cache
def _names() -> dict[str, str]:
    scripts = Path(str(files("fleet.device"))).rglob("*.sh")
    names = [path.stem for path in scripts]
    return {device_script(name).argv[2]: name for name in names}


class PcBoard(Board):
    """A base folder; the same tests as for other systems run on it."""

    windows = True

    def __init__(self, root: Path) -> None:
        super().__init__(root, "dash")
        self.facts = replace(self.facts, windows=Windows())

    def argv(
        self, argv: tuple[str, ...], stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return work((_names()[argv[2]], *argv[4:]), stdin, env)

    def do(self, command: Command, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        assert command.call is not None
        return work((command.call.name, *command.call.args), stdin)

    @property
    def current(self) -> str | None:
        pointer = self.base / "current" / "app"
        return pointer.read_text().strip() if pointer.is_file() else None


def board_of(kind: str, root: Path) -> Board:
    """The board of a kind of tests/ops/board.py, or `windows`."""
    return PcBoard(root) if kind == "windows" else Board(root, kind)


class PcLeaseBoard(LeaseBoard):
    """Leases, kept by the same program."""

    def do(
        self, command: Command, stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        assert command.call, command.argv[4:]
        words = (command.call.name, *command.call.args)
        return work(words, stdin, {"FLEET_LEASE_DIR": str(self.leases), **(env or {})})
