"""A base folder on this machine, and the device scripts run on it under a chosen shell."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from fleet.device.shell import device_script
from fleet.model.command import Command, script
from fleet.model.facts import Disk, Facts, Tools
from fleet.model.files import Chunk, FileRef, Span, file_ref
from fleet.model.lease import WRITE, LeaseHolder, Ticket
from fleet.model.manifest import Manifest
from fleet.model.plan import Action, Blob, PruneReleases, StageRelease, SwitchRelease
from fleet.ops import lease, release, upload
from fleet.ops.backend import backend_for
from fleet.ops.frames import Style, frames
from fleet.ops.lease import LeaseAnswer
from fleet.ops.release import ReleaseState
from tests import needs

# With `+tar` the device has tar, that of busybox under busybox; without, links one by one.
# With `+cpio` it is as a phone: cpio (that of busybox; toybox's: tests/phones), all in one stream.
SHELLS = ("dash", "bash", "busybox", "mksh", "dash+tar", "busybox+tar", "mksh+tar", "mksh+cpio")
KINDS = (*SHELLS, "python")  # the last does the same by the device worker


class Board:
    windows = False

    def __init__(self, root: Path, kind: str) -> None:
        shell, _, tar = kind.replace("python", "dash").partition("+")
        found = needs.tool(shell)
        self.shell = [found, "sh"] if shell == "busybox" else [found]
        self.base = root / "base with space"
        self.tools = root / "applets"
        if tar == "cpio" or (tar and shell == "busybox"):
            self.tools.mkdir()
            (self.tools / tar).symlink_to(needs.tool("busybox"))
        self.facts = Facts(
            base_dir=str(self.base),
            disk=Disk(str(root), available_bytes=1 << 40),
            tools=Tools(
                python3=sys.executable if kind == "python" else None,
                sha256=("sha256sum",),
                dd_fullblock=True,
                sync_file=True,
                tar=bool(tar),
                cpio=tar == "cpio",
            ),
        )

    def without(self, **tools: Any) -> Facts:
        return structs.replace(self.facts, tools=replace(self.facts.tools, **tools))

    def run(
        self, name: str, *args: str, stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        command = device_script(name, *args)
        return self.argv(command.argv, stdin, env)

    def argv(
        self, argv: tuple[str, ...], stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        assert argv[0] == sys.executable or argv[:2] == ("sh", "-c")
        return subprocess.run(
            argv if argv[0] == sys.executable else [*self.shell, *argv[1:]],
            input=stdin,
            capture_output=True,
            timeout=60,
            check=False,
            env={
                **os.environ,
                "PATH": f"{self.tools}:{os.environ['PATH']}",
                **(env or {}),
            },
        )

    def state(self, manifest: Manifest, *, verify: bool = False) -> ReleaseState:
        asked = backend_for(self.facts).state(manifest, verify=verify)
        done = self.do(asked.command, b"".join(asked.stdin))
        assert done.returncode == 0, done.stderr
        return release.parse_state(done.stdout.decode(), "board", manifest)

    def send(
        self, blobs: list[Blob], *, cut: int | None = None, batches: bool = False
    ) -> upload.Receipt:
        """`cut` counts from behind the program, where there is one."""
        backend = backend_for(self.facts)
        style = Style(batches=batches, worker=backend.worker, archive=backend.archive)
        data = flat(frames(blobs, lambda *_: None, style))
        end = None if cut is None else len(program(self.facts)) + cut
        done = self.do(backend.receive(), data[:end])
        receipt = upload.Receipt()
        receipt.take(done.stdout)
        return receipt

    def do(self, command: Command, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return self.argv(command.argv, stdin)

    def act(self, action: Action, run: str = "r1") -> subprocess.CompletedProcess[bytes]:
        """One step of a release, as its back end has it done."""
        command, stdin = ordered(self.facts, [action], run)
        return self.do(command, stdin)

    def stage(self, manifest: Manifest, run: str = "r1") -> subprocess.CompletedProcess[bytes]:
        return self.act(StageRelease(manifest), run)

    def switch(self, manifest: Manifest, run: str = "r1") -> subprocess.CompletedProcess[bytes]:
        return self.act(SwitchRelease(manifest.name, manifest.id), run)

    def prune(self, keep: str, name: str = "app") -> subprocess.CompletedProcess[bytes]:
        return self.act(PruneReleases(name, int(keep)))

    def deploy(self, manifest: Manifest) -> None:
        state = self.state(manifest)
        lacking = [Blob(i) for sha, i in manifest.blobs.items() if sha not in state.have]
        self.send(lacking).check(lacking, self.facts, "board", "")
        assert self.stage(manifest).returncode == 0
        done = self.switch(manifest)
        assert done.returncode == 0, done.stderr

    @property
    def release(self) -> Path:
        """The folder of the live release; `own` is what fleet keeps of it."""
        return self.base / "releases" / "app" / str(self.current)

    @property
    def own(self) -> Path:
        return self.base / "meta" / "app" / str(self.current)

    @property
    def current(self) -> str | None:
        link = self.base / "current" / "app"
        return link.resolve().name if link.is_symlink() else None

    def store(self) -> set[str]:
        folder = self.base / "store"
        return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


class LeaseBoard(Board):
    """A board with leases of its own; `user` makes it that of another user (root only)."""

    # A step that says something, and one that fails, on every kind of device.
    step = script("cat /proc/sys/kernel/random/boot_id", name="boot_id")
    failing = script("exit 7", "/no/such/file", name="show")

    def __init__(self, root: Path, shell: str) -> None:
        super().__init__(root, shell)
        self.leases = root / "lease dir"
        self.leases.mkdir()
        self.leases.chmod(0o1777)
        self.user: int | None = None
        self.extra: dict[str, str] = {}
        self.number = 0

    def do(
        self, command: Command, stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        words = [self.shell if word == "sh" else [word] for word in command.argv]
        return subprocess.run(
            [part for word in words for part in word],
            input=stdin, capture_output=True, timeout=60, check=False,
            cwd=self.leases if self.leases.is_dir() else self.leases.parent,
            user=self.user, group=self.user, extra_groups=None if self.user is None else [],
            env={**os.environ, "FLEET_LEASE_DIR": str(self.leases), **self.extra, **(env or {})},
        )  # fmt: skip

    def ask(self, command: Command) -> LeaseAnswer:
        done = self.do(command)
        assert done.returncode == 0, done
        assert done.stderr == b"", done.stderr
        return lease.parse_lease(done.stdout.decode(), "board")

    def take(
        self, who: str = "ann@desk", kind: str = WRITE, *, ttl: int = 60, dead: str = "-",
        reason: str = "deploy app", token: str = "",
    ) -> LeaseAnswer:  # fmt: skip
        self.number += 1
        token = token or f"{self.number:032x}"
        return self.ask(
            lease.take_command(kind, who, reason, "run-1", token=token, ttl=ttl, dead=dead)
        )

    def ticket(self, answer: LeaseAnswer, *, ttl: int = 60) -> Ticket:
        assert answer.got is not None, answer
        return Ticket(answer.place, answer.got, f"{self.number:032x}", ttl)

    def drop(self, who: str, *, force: bool = False) -> LeaseAnswer:
        self.number += 1
        return self.ask(
            lease.drop_command(who, "because", f"{self.number:032x}", force=force)
        )  # fmt: skip

    def who(self) -> list[LeaseHolder]:
        return self.ask(lease.who_command()).held

    @property
    def folder(self) -> Path:
        return self.leases / "fleet-lease"

    def put(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def generations(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


def program(facts: Facts) -> bytes:
    """What goes ahead of a stream for the device worker."""
    return backend_for(facts).worker or b""


def actions_of(app: Manifest) -> tuple[Action, ...]:
    return StageRelease(app), SwitchRelease("app", app.id), PruneReleases("app", 2)


def ordered(facts: Facts, actions: Sequence[Action], run: str = "r1") -> tuple[Command, bytes]:
    """Steps of a release that go together, and their standard input."""
    backend = backend_for(facts)
    (turn,) = backend.turns(actions, run)
    if turn.order is not None:
        return turn.order.command, b"".join(turn.order.stdin)
    frames = b"".join(step.frame() for step in turn.steps)
    return backend.receive(steps=True), program(facts) + frames


def flat(chunks: Iterable[Chunk]) -> bytes:
    """What a transport sends."""
    return b"".join(chunk.load() if isinstance(chunk, Span) else chunk for chunk in chunks)


def make_files(root: Path, content: dict[str, bytes]) -> tuple[FileRef, ...]:
    files = []
    for name, data in content.items():
        path = root / hashlib.sha256(name.encode() + data).hexdigest()[:12]
        path.write_bytes(data)
        files.append(file_ref(path, name, executable=name.startswith("bin/")))
    return tuple(files)


def manifest(root: Path, content: dict[str, bytes]) -> Manifest:
    root.mkdir(parents=True, exist_ok=True)
    env = {"LD_LIBRARY_PATH": "{release}/lib", "ODD": "it's; $(id) `x`"}
    return Manifest("app", make_files(root, content), env, ("DSP_LIBRARY_PATH",), {"v": 1})
