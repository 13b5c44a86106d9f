"""The answers of a device that receives blobs and makes releases."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from fleet.model.errors import DeviceError, DiskFullError, TransferError
from fleet.model.events import Listener, StepStarted
from fleet.model.facts import Facts
from fleet.model.files import human_bytes
from fleet.model.masking import masked
from fleet.model.plan import Blob

_STEPS = {"staged": "stage", "switched": "switch", "pruned": "prune"}
_OWN_INODES = 40
_NO_SPACE = ("No space left on device", "Disk quota exceeded", "File too large")


@dataclass(frozen=True)
class Step:
    """A step after the blobs (stage, switch or prune): its name, a line for people, and its frame.

    Line and frame are computed when the step's turn in the stream comes.
    """

    name: str
    says: Callable[[], str]
    frame: Callable[[], bytes]


def step_frames(steps: Collection[Step], host: str, listener: Listener) -> Iterator[bytes]:
    """Yield the frames of the steps, and announce each step at its beginning."""
    for step in steps:
        listener(StepStarted(host, step.name, step.says()))
        yield step.frame()


def sync_mode(facts: Facts) -> str:
    """Return `file` if `sync FILE` works, else `all`: data is always synced before a rename."""
    return "file" if facts.tools.sync_file else "all"


@dataclass
class Receipt:
    """The received data, fed with the lines of receive.sh or of the device worker.

    `took` is the number of bytes received so far of each large blob. `done` are the completed steps
    (stage, switch, prune). `wrong` is the failed step with the reason; `unpruned` is the reason why
    old files stay.
    """

    ok: set[str] = field(default_factory=set)
    unhashed: set[str] = field(default_factory=set)
    took: dict[str, int] = field(default_factory=dict)
    bad: dict[str, str] = field(default_factory=dict)
    failed: str = ""
    cut: bool = False
    done: set[str] = field(default_factory=set)
    wrong: tuple[str, str] = ("", "")
    unpruned: str = ""
    _rest: bytes = b""

    def take(self, chunk: bytes) -> None:
        """Parse one chunk of the device's standard output."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._line(line.decode("utf-8", "replace"))

    def _line(self, line: str) -> None:
        kind, _, rest = line.partition(" ")
        sha, _, more = rest.partition(" ")
        if kind == "ok":
            self.ok.add(sha)
        elif kind == "oks":
            self.ok.update(rest.split())
        elif kind == "unhashed":
            self.unhashed.add(sha)
        elif kind == "took" and more.isascii() and more.isdigit():
            self.took[sha] = int(more[:9]) << 20
        elif kind == "bad":
            self.bad[sha] = more
        elif kind == "failed" and sha in _STEPS.values():
            self.wrong = (sha, more.strip())
        elif kind == "failed":
            self.failed = more.strip() or "write failed"
        elif kind in _STEPS:
            self.done.add(_STEPS[kind])
        elif kind == "unpruned":
            self.unpruned = rest
        elif kind in {"short", "moved"}:
            self.cut = True

    def check(
        self,
        blobs: Sequence[Blob],
        facts: Facts,
        host: str,
        stderr: str,
        steps: Collection[Step] = (),
    ) -> None:
        """Raise the error of the upload: DiskFullError, TransferError or DeviceError."""
        if any(mark in self.failed for mark in _NO_SPACE):
            raise self._full(blobs, facts, host)
        if self.failed:
            raise DeviceError(
                f"cannot write to {facts.base_dir}: {self.failed}",
                device=host,
                hint="set base_dir in the inventory to a folder that this user can write to; or "
                f"look on the device: ls -ld {shlex.quote(facts.base_dir)}",
            )
        if self.bad:
            names = ", ".join(sorted(b.file.name for b in blobs if b.file.sha256 in self.bad))
            raise TransferError(
                f"files on the device differ from the files that fleet sent (SHA-256): {names}",
                device=host,
                hint="deploy again: the source file may have changed; if it happens twice, check "
                "the disk of the device: dmesg",
            )
        there = self.ok | self.unhashed
        missing = [b for b in blobs if b.file.sha256 not in there]
        if missing or self.cut:
            output = masked(stderr)[-300:].strip()
            raise TransferError(
                f"the device did not receive {len(missing)} of {len(blobs)} files"
                + (f": {output}" if output else ""),
                device=host,
                hint="deploy again; the transfer resumes where it stopped",
            )
        self.check_steps(steps, host, stderr)

    def _full(self, blobs: Sequence[Blob], facts: Facts, host: str) -> DiskFullError:
        need = sum(blob.left for blob in blobs)
        disk = facts.disk
        fits = disk.available_bytes is not None and need < disk.available_bytes
        # A file is a blob and a link. Folders and fleet's own files add to it.
        if fits and disk.inodes is not None and disk.inodes <= 2 * len(blobs) + _OWN_INODES:
            return DiskFullError(
                f"{facts.base_dir} on the device: no inodes are left: {self.failed.strip()}; "
                f"fleet needed room for {len(blobs)} files, but only {disk.inodes} inodes were "
                "free",
                device=host,
                hint=f"delete files under {disk.mount or facts.base_dir} (df -i shows the inodes), "
                "or set base_dir in the inventory to another file system; then run the command "
                "again, which resumes the transfer",
            )
        return DiskFullError(
            f"{facts.base_dir} on the device: {self.failed.strip()}; fleet needed "
            f"{human_bytes(need)}, but only {human_bytes(facts.disk.available_bytes)} were "
            "free",
            device=host,
            hint=(
                f"free space under {facts.disk.mount or facts.base_dir}, or set base_dir in "
                "the inventory; then run the command again, which resumes the transfer"
            )
            if "File too large" not in self.failed
            else (
                "set base_dir in the inventory to another file system of the device, or raise the "
                "limit of the file size (on the device, ulimit -f and df -T show what limits it)"
            ),
        )

    def check_steps(self, steps: Collection[Step], host: str, stderr: str) -> None:
        """Raise the DeviceError of the first step that was not done; pruning may fail."""
        for step in steps:
            if step.name in self.done or step.name == "prune":
                continue
            name, why = self.wrong
            words = (
                why if name == step.name else masked(stderr)[-300:] or ("the device did not answer")
            )
            raise DeviceError(f"{step.name} failed: {words}", device=host, step=step.name)
